# METADATA
# scope: package
# title: Protected paths can be read and not changed
# custom:
#   severity: HIGH
#   id: BUILTIN-PROTECTED-PATHS
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.protected_paths

import rego.v1

config := input.builtin_config.protected_paths

# What the call would change of `config.paths` is found by the reader that self-protection uses.
halt contains decision if {
	input.hook_event_name == "PreToolUse"
	some place in input.would_change
	decision := {
		"rule_id": "BUILTIN-PROTECTED-PATHS",
		"reason": concat("", [config.message, " (", place, ")"]),
		"severity": "HIGH",
	}
}
