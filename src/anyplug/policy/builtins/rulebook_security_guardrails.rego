# METADATA
# scope: package
# title: The policies themselves are out of reach
# custom:
#   severity: HIGH
#   id: BUILTIN-RULEBOOK-SECURITY
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.rulebook_security_guardrails

import data.cupcake.helpers.anyplug as shared
import rego.v1

config := input.builtin_config.rulebook_security_guardrails

halt contains decision(concat("", [config.message, " (blocked file operation on ", place, ")"])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name != "Bash"
	some place in places
	some pattern in config.protected_paths
	concerns(place, pattern)
}

halt contains decision(concat("", [config.message, " (detected ", pattern, " modification in bash command)"])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some pattern in config.protected_paths
	shared.mentions(command, pattern)
}

places contains file if some file in shared.files

places contains input.tool_input[key] if some key in ["pattern", "url", "prompt", "path"]

concerns(place, pattern) if shared.named(place, pattern)

concerns(place, pattern) if contains(lower(place), lower(trim_right(pattern, "/")))

decision(reason) := {"rule_id": "BUILTIN-RULEBOOK-SECURITY", "reason": reason, "severity": "HIGH"}
