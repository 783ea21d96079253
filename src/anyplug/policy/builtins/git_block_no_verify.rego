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

# What changes the hooks themselves is found by the reader that self-protection uses.
deny contains decision("Disabling git hooks is not permitted. Hooks are required for code quality and security.") if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	count(input.would_change_hooks) > 0
	not excepted
}

# The words of each git command, from `git` on: also behind sudo, env and the like.
gits contains array.slice(command.words, at, count(command.words)) if {
	some command in input.commands
	some at, word in command.words
	regex.match(`(?i)(^|/)git$`, word)
}

skips_hooks(words) if {
	some word in words
	startswith(lower(word), "--no-v")
	startswith("--no-verify", lower(word))
}

# -n means the same to commit only; of letters in one word it is one before the first that takes a value.
skips_hooks(words) if {
	commits(words)
	some word in words
	regex.match(`^-[aeiopqsvz]*n`, word)
}

commits(words) if "commit" in words

# A word that is no command of git's may be an alias of one.
commits(words) if not subcommand(words) in commands

subcommand(words) := [word |
	some at, word in words
	at > 0
	not startswith(word, "-")
	not words[at - 1] in {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source"}
][0]

commands := {
	"add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file", "check-attr",
	"check-ignore", "checkout", "checkout-index", "cherry", "cherry-pick", "clean", "clone", "column", "config",
	"count-objects", "describe", "diff", "diff-files", "diff-index", "diff-tree", "difftool", "fast-export", "fetch",
	"for-each-ref", "format-patch", "fsck", "gc", "grep", "help", "init", "lfs", "log", "ls-files", "ls-remote", "ls-tree",
	"maintenance", "merge", "merge-base", "mergetool", "mv", "name-rev", "notes", "pull", "push", "range-diff", "rebase",
	"reflog", "remote", "repack", "replace", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog",
	"show", "show-branch", "show-ref", "sparse-checkout", "stage", "stash", "status", "submodule", "subtree", "switch",
	"symbolic-ref", "tag", "update-index", "update-ref", "var", "verify-commit", "verify-tag", "version", "whatchanged",
	"worktree",
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
skips_hooks(words) if {
	some word in words
	word in {"commit-tree", "fast-import"}
}

skips_hooks(words) if {
	"hash-object" in words
	"commit" in words
}

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

excepted if {
	some exception in config.exceptions
	contains(input.tool_input.command, exception)
}

decision(reason) := {"rule_id": "BUILTIN-GIT-BLOCK-NO-VERIFY", "reason": reason, "severity": "HIGH"}
