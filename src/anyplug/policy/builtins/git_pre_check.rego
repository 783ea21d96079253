# METADATA
# scope: package
# title: Checks pass before a commit
# custom:
#   severity: HIGH
#   id: BUILTIN-GIT-CHECK
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["Bash"]
package cupcake.policies.builtins.git_pre_check

import rego.v1

config := input.builtin_config.git_pre_check

halt contains decision if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some number, check in config.checks
	answer := input.signals[concat("", ["__builtin_git_pre_check_", format_int(number, 10)])]
	is_object(answer)
	answer.success == false
	decision := {
		"rule_id": "BUILTIN-GIT-CHECK",
		"reason": concat("", [check.message, output(answer)]),
		"severity": "HIGH",
	}
}

output(answer) := concat("", ["\n", trim_space(concat("\n", [answer.output, answer.error]))]) if {
	trim_space(concat("\n", [answer.output, answer.error])) != ""
} else := ""
