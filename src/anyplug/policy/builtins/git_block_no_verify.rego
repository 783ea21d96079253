# METADATA
# scope: package
# title: Git hooks are not passed over
# custom:
#   severity: HIGH
#   id: BUILTIN-GIT-BLOCK-NO-VERIFY
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["Bash"]
package cupcake.policies.builtins.git_block_no_verify

import data.cupcake.helpers.anyplug as shared
import rego.v1

config := input.builtin_config.git_block_no_verify

deny contains decision(config.message) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some words in gits
	skips_hooks(words)
	not excepted
}

deny contains decision("Disabling git hooks is not permitted. Hooks are required for code quality and security.") if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	disables_hooks(command)
	not excepted
}

# The words of each git command, from `git` on: also behind sudo, env and the like.
gits contains array.slice(command.words, at, count(command.words)) if {
	some command in input.commands
	some at, word in command.words
	regex.match(`(?i)(^|/)git$`, word)
}

skips_hooks(words) if {
	some subcommand in {"commit", "push", "merge", "rebase", "am", "pull", "cherry-pick"}
	some one in words
	lower(one) == subcommand
	some word in words
	startswith(lower(word), "--no-v")
	startswith("--no-verify", lower(word))
}

# -n means the same to commit only; of letters in one word it is one before the first that takes a value.
skips_hooks(words) if {
	"commit" in words
	some word in words
	regex.match(`^-[aepqsvz]*n`, word)
}

skips_hooks(words) if {
	some at, word in words
	word in {"-c", "--config-env"}
	startswith(lower(words[at + 1]), "core.hookspath")
}

skips_hooks(words) if {
	some word in words
	regex.match(`(?i)^--config-env=core\.hookspath`, word)
}

skips_hooks(words) if {
	some word in words
	regex.match(`(?i)^-c=?core\.hookspath`, word)
}

# A file with other settings can switch hooks off, and so can programs in the place of git's own.
skips_hooks(words) if {
	runs_hooks(words)
	some at, word in words
	word in {"-c", "--config-env"}
	regex.match(`(?i)^include(if\..*)?\.path`, words[at + 1])
}

skips_hooks(words) if {
	runs_hooks(words)
	some word in words
	regex.match(`(?i)^(-c|--config-env=)include(if\..*)?\.path|^--exec-path=`, word)
}

# Commits that are put together by hand run no hooks.
skips_hooks(words) if "commit-tree" in words

runs_hooks(words) if {
	some word in words
	lower(word) in {"commit", "push", "merge", "rebase", "am", "pull", "cherry-pick", "revert"}
}

disables_hooks(command) if {
	some words in gits
	runs_hooks(words)
	some word in command.words
	regex.match(foreign, word)
}

disables_hooks(command) if {
	some words in gits
	"config" in words
	some at, word in words
	regex.match(`(?i)^include(if\..*)?\.path$`, word)
	count(words) > at + 1
	not reads_setting(words)
}

reads_setting(words) if {
	some word in words
	regex.match(`^(get|list|--get.*|-l|--list|--unset.*|unset)$`, word)
}

# Variables that give git other settings or programs, or tell the usual managers of hooks to run none.
foreign := concat("|", [
	`^(GIT_CONFIG_GLOBAL|GIT_CONFIG_SYSTEM|GIT_CONFIG_NOSYSTEM|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|HOME|XDG_CONFIG_HOME)=`,
	`(?i)^GIT_CONFIG_(KEY_\d+|PARAMETERS)=.*include`,
	`^(HUSKY=0|HUSKY_SKIP_HOOKS=|SKIP=.|LEFTHOOK=(0|false)|LEFTHOOK_EXCLUDE=|OVERCOMMIT_DISABLE=|PRE_COMMIT_ALLOW_NO_CONFIG=)`,
])

disables_hooks(command) if {
	some words in gits
	"config" in words
	some word in words
	lower(word) == "core.hookspath"
	some value in words
	regex.match(`^(/dev/null|/tmp.*|/nonexistent.*|)$`, value)
}

# Hooks that lie elsewhere than in the project are others than these.
disables_hooks(command) if {
	some words in gits
	"config" in words
	some at, word in words
	lower(word) == "core.hookspath"
	value := words[at + 1]
	regex.match(`^(/|~|\$|\.\.(/|$))`, value)
	not startswith(value, concat("", [input.cwd, "/"]))
}

disables_hooks(command) if {
	some words in gits
	"config" in words
	some word in words
	lower(word) in {"core.hookspath", "core"}
	some option in words
	option in {"unset", "--unset", "--unset-all", "--remove-section", "--rename-section", "remove-section", "rename-section"}
}

# Git also reads its settings from the environment and from a file.
disables_hooks(command) if {
	some word in command.words
	regex.match(`(?i)^GIT_CONFIG\w*=.*core\.hookspath`, word)
}

disables_hooks(command) if {
	some other in input.commands
	some word in other.words
	contains(lower(word), "hookspath")
	some place in shared.places(command)
	endswith(place, "/.git/config")
	not shared.reads_only(command)
}

disables_hooks(command) if {
	some word in command.words
	regex.match(`(^|/)(rm|unlink|trash|mv|truncate|shred|tee|dd|cp|ln|install|sponge)$`, word)
	some path in shared.places(command)
	contains(concat("", [path, "/"]), "/.git/hooks/")
}

disables_hooks(command) if {
	some path in command.writes
	contains(concat("", [path, "/"]), "/.git/hooks/")
}

disables_hooks(command) if {
	shared.changes_files(command)
	some path in shared.places(command)
	contains(concat("", [path, "/"]), "/.git/hooks/")
}

disables_hooks(command) if {
	some word in command.words
	regex.match(`(^|/)(rm|mv|trash|shred)$`, word)
	some path in shared.places(command)
	endswith(path, "/.git")
}

disables_hooks(command) if {
	command.name == "chmod"
	some path in shared.places(command)
	contains(concat("", [path, "/"]), "/.git/hooks/")
	some word in command.words
	regex.match(`^([ugoa]*-[rw]*x|[ugoa]*=[rw]*|0?[0-7]*[0246][0-7]{2})$`, word)
}

excepted if {
	some exception in config.exceptions
	contains(input.tool_input.command, exception)
}

decision(reason) := {"rule_id": "BUILTIN-GIT-BLOCK-NO-VERIFY", "reason": reason, "severity": "HIGH"}
