# METADATA
# scope: package
# title: Files with secrets are not read
# custom:
#   severity: HIGH
#   id: GLOBAL-BUILTIN-SENSITIVE-DATA
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.sensitive_data_protection

import data.cupcake.helpers.anyplug as shared
import rego.v1

config := input.builtin_config.sensitive_data_protection

folders := {"/.ssh/", "/.aws/", "/.gnupg/", "/.kube/", "/.azure/", "/.gcloud/", "/.config/gcloud/", "/.docker/config"}

# Words that mean it only as a whole: `auth.json`, and not `author.py`.
words := `(?i)(^|[^a-z])(tokens?|private|auth|cookies?|sessions?|apikeys?)([^a-z]|$)`

# What a program is made of names such things, and holds none.
source_code := `(?i)\.(c|cc|cpp|cs|css|ex|go|h|html|java|js|jsx|kt|md|php|py|rb|rs|rst|scala|swift|ts|tsx|vue)$`

files := `(?i)(^|/)(known_hosts|authorized_keys|kubeconfig|dotenv|\.dockercfg|\.gitconfig|\.hgrc|database\.(yml|json)|connection\.json|wp-config\.php|nuget\.config|\.m2/settings\.xml|\.gradle/gradle\.properties)$|\.(cer|crt|db|sqlite[0-9]*)$`

names := `(?i)^(\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|jks|keystore|ppk)|.*(credential|secret|password|passwd|api[_-]?key|private[_-]?key|access[_-]?token).*)$`

hidden := {
	".env", ".env.local", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".dockercfg", ".ssh", ".aws",
	".gnupg", ".kube", ".azure", ".gcloud",
}

deny contains decision(concat("", [config.message, ": ", base(file)])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name != "Bash"
	some file in shared.files
	sensitive(file)
}

deny contains decision(concat("", [config.message, ": ", pattern])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Glob"
	pattern := input.tool_input.pattern
	sensitive(concat("", ["/", replace(pattern, "*", "")]))
}

# The files among which a tool searches.
deny contains decision(concat("", [config.message, ": ", pattern])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name in {"Grep", "grep"}
	some key in {"glob", "include", "file_pattern", "pattern_files"}
	pattern := input.tool_input[key]
	is_string(pattern)
	some part in regex.split(`[{},]`, pattern)
	some before in {"", split(pattern, "{")[0]}
	names_secret(concat("", [before, part]))
}

names_secret(pattern) if sensitive(concat("", ["/", replace(pattern, "*", "")]))

names_secret(pattern) if {
	some name in hidden
	startswith(pattern, ".")
	shared.can_be(base(pattern), name)
}

deny contains decision(concat("", [config.message, ": ", base(word)])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some at, word in command.words
	at > 0
	not startswith(word, "-")
	not contains(word, " ")
	sensitive(concat("", ["/", word]))
}

deny contains decision(concat("", [config.message, ": ", base(file)])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some file in command.writes
	sensitive(file)
}

# Where words lead: with variables, globs and `cd` read, as the value of an option (`if=.env`), behind `@` and `<`.
deny contains decision(concat("", [config.message, ": ", base(file)])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some file in command.targets
	sensitive(file)
}

# Globs, and parts that are not known, can stand for a file that is hidden, whether it is there or not.
deny contains decision(concat("", [config.message, ": ", base(file)])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some file in command.targets
	some part in split(file, "/")
	some name in hidden
	shared.can_be(part, name)
}

deny contains decision(concat("", [config.message, ": ", found])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some found in {
		"security find-generic-password", "security dump-keychain", "gpg --export", "ssh-add -l", "aws configure get",
		"gcloud auth print-access-token", "docker login", "git config --get",
	}
	contains(lower(input.tool_input.command), found)
}

sensitive(path) if regex.match(names, base(path))

sensitive(path) if {
	regex.match(words, base(path))
	not regex.match(source_code, base(path))
}

sensitive(path) if regex.match(files, path)

sensitive(path) if {
	some folder in folders
	contains(lower(path), folder)
	not endswith(path, ".pub")
}

sensitive(path) if {
	some pattern in config.additional_patterns
	shared.named(path, pattern)
}

base(path) := parts[count(parts) - 1] if parts := split(path, "/")

decision(reason) := {"rule_id": "GLOBAL-BUILTIN-SENSITIVE-DATA", "reason": reason, "severity": "HIGH"}
