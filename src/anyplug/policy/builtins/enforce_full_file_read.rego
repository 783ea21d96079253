# METADATA
# scope: package
# title: Short files are read as a whole
# custom:
#   severity: MEDIUM
#   id: BUILTIN-ENFORCE-FULL-READ
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["Read"]
package cupcake.policies.builtins.enforce_full_file_read

import rego.v1

config := input.builtin_config.enforce_full_file_read

deny contains decision if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Read"
	input.file_line_count <= config.max_lines
	in_part
	decision := {"rule_id": "BUILTIN-ENFORCE-FULL-READ", "reason": config.message, "severity": "MEDIUM"}
}

in_part if input.tool_input.offset > 1

in_part if {
	is_number(input.tool_input.offset)
	input.tool_input.offset < 0
}

in_part if {
	is_number(input.tool_input.limit)
	input.tool_input.limit < input.file_line_count
}

# What is no number means whatever the agent's tool makes of it.
in_part if {
	some key in {"offset", "limit"}
	value := input.tool_input[key]
	not is_number(value)
	value != null
}

in_part if {
	pages := input.tool_input.pages
	not pages in {null, ""}
	not endswith(lower(input.resolved_file_path), ".pdf")
}
