# METADATA
# scope: package
# title: Protected paths can be read and not changed
# custom:
#   severity: HIGH
#   id: BUILTIN-PROTECTED-PATHS
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.protected_paths

import data.cupcake.helpers.anyplug as shared
import rego.v1

config := input.builtin_config.protected_paths

halt contains decision(concat("", [config.message, " (", file, ")"])) if {
	input.hook_event_name == "PreToolUse"
	not input.tool_name in {"Bash", "Read", "Grep", "Glob", "List"}
	some file in shared.files
	some pattern in config.paths
	shared.named(file, pattern)
}

halt contains decision(concat("", [config.message, " (only read operations allowed)"])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some pattern in config.paths
	shared.mentions(command, pattern)
	some other in input.commands
	not shared.reads_only(other)
}

# A command that does not only read, and that is given a folder in which something protected lies, may change that, too.
halt contains parent_decision(pattern, folder) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some other in input.commands
	not shared.keeps_files(other)
	some folder in folders
	some pattern in config.paths
	startswith(pattern, "/")
	shared.is_above(folder, pattern)
}

# Of a pattern that is relative, or has a * in it, only what removes or moves a folder as a whole is taken for that.
halt contains parent_decision(pattern, folder) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some other in input.commands
	shared.removes(other)
	some folder in array.concat(shared.places(other), input.affected_parent_directories)
	some pattern in config.paths
	not startswith(pattern, "/")
	shared.is_above(folder, concat("/", [input.cwd, trim_prefix(pattern, "./")]))
}

folders contains folder if some folder in input.affected_parent_directories

folders contains folder if {
	some command in input.commands
	some folder in shared.places(command)
	shared.removes(command)
}

folders contains folder if {
	some command in input.commands
	some folder in array.concat(command.paths, command.writes)
}

parent_decision(pattern, folder) := {
	"rule_id": "BUILTIN-PROTECTED-PATHS-PARENT",
	"reason": concat("", [config.message, " (", pattern, " would be affected by an operation on ", folder, ")"]),
	"severity": "HIGH",
}

decision(reason) := {"rule_id": "BUILTIN-PROTECTED-PATHS", "reason": reason, "severity": "HIGH"}
