# METADATA
# scope: package
# title: Edited files are checked
# custom:
#   severity: MEDIUM
#   id: BUILTIN-POST-EDIT
#   routing:
#     required_events: ["PostToolUse"]
package cupcake.policies.builtins.post_edit_check

import rego.v1

config := input.builtin_config.post_edit_check

ask contains decision if {
	input.hook_event_name == "PostToolUse"
	some extension, answer in answers
	failed(answer)
	question := concat("\n", [
		concat(" ", ["File validation failed for", input.resolved_file_path]),
		config.by_extension[extension].message,
		trim_space(concat("\n", [answer.output, answer.error])),
	])
	decision := {"rule_id": "BUILTIN-POST-EDIT", "reason": question, "question": question, "severity": "MEDIUM"}
}

add_context contains concat(" ", ["✓ Validation passed for", input.resolved_file_path]) if {
	input.hook_event_name == "PostToolUse"
	some answer in answers
	not failed(answer)
}

answers := {extension: answer |
	some extension, _ in config.by_extension
	answer := input.signals[concat("", ["__builtin_post_edit_", extension])]
}

failed(answer) if {
	is_object(answer)
	answer.success == false
}
