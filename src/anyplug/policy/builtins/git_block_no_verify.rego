# METADATA
# scope: package
# title: Git hooks are not passed over
# custom:
#   severity: HIGH
#   id: BUILTIN-GIT-BLOCK-NO-VERIFY
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.git_block_no_verify

import rego.v1

config := input.builtin_config.git_block_no_verify

# Both lists come from the reader that self-protection uses: see policy/hook_paths.
deny contains decision(config.message) if {
	input.hook_event_name == "PreToolUse"
	count(input.passes_over_hooks) > 0
	not excepted
}

deny contains decision(disabling) if {
	input.hook_event_name == "PreToolUse"
	some what in input.would_change_hooks
	not excepted
	disabling := sprintf("%s (%s)", [
		"Disabling git hooks is not permitted. Hooks are required for code quality and security.",
		what,
	])
}

excepted if {
	some exception in config.exceptions
	contains(input.tool_input.command, exception)
}

decision(reason) := {"rule_id": "BUILTIN-GIT-BLOCK-NO-VERIFY", "reason": reason, "severity": "HIGH"}
