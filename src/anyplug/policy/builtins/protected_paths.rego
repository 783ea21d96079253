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

decision(reason) := {"rule_id": "BUILTIN-PROTECTED-PATHS", "reason": reason, "severity": "HIGH"}
