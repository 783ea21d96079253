# METADATA
# scope: package
# title: The same context with every prompt
# custom:
#   severity: LOW
#   id: BUILTIN-INJECT-PROMPT
#   routing:
#     required_events: ["UserPromptSubmit"]
package cupcake.policies.builtins.always_inject_on_prompt

import rego.v1

add_context contains concat("\n\n", texts) if {
	input.hook_event_name == "UserPromptSubmit"
	count(texts) > 0
}

texts := array.concat(
	input.builtin_config.always_inject_on_prompt.static_contexts,
	[text(value) |
		some name, value in input.signals
		startswith(name, "__builtin_prompt_context_")
	],
)

text(value) := value if is_string(value)

text(value) := json.marshal(value) if not is_string(value)
