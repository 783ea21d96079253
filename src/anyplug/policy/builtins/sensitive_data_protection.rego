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

names := `(?i)^(\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|jks|keystore|ppk)|.*(credential|secret|password|passwd|api[_-]?key|private[_-]?key|access[_-]?token).*)$`

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

deny contains decision(concat("", [config.message, ": ", found])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some found in {
		"security find-generic-password", "security dump-keychain", "gpg --export-secret", "aws configure get",
		"gcloud auth print-access-token",
	}
	contains(lower(input.tool_input.command), found)
}

sensitive(path) if regex.match(names, base(path))

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
