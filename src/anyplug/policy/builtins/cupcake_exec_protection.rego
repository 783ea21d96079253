# METADATA
# scope: package
# title: The gate's own programs are not run by an agent
# custom:
#   severity: HIGH
#   id: GLOBAL-BUILTIN-CUPCAKE-EXEC
#   routing:
#     required_events: ["PreToolUse"]
#     required_tools: ["Bash"]
package cupcake.policies.builtins.cupcake_exec_protection

import rego.v1

config := input.builtin_config.cupcake_exec_protection

halt contains decision if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	runs_the_gate(command.words)
	not allowed(command.words)
	decision := {"rule_id": "GLOBAL-BUILTIN-CUPCAKE-EXEC", "reason": config.message, "severity": "HIGH"}
}

runs_the_gate(words) if {
	some word in words
	regex.match(`(^|/)cupcake(\.exe)?$`, word)
}

runs_the_gate(words) if {
	some at, word in words
	regex.match(`(^|/)anyplug(\.exe)?$`, word)
	some later in array.slice(words, at + 1, count(words))
	later in {"approve", "config", "deny", "disable", "enable", "grant", "install", "policy", "remove", "rm", "secret", "ungrant", "uninstall"}
}

# Scripts and names that stand for it; `.cupcake` is the folder of policies, and not the program.
runs_the_gate(words) if {
	regex.match(`(^|/)(sh|bash|zsh|source|\.|eval|exec|alias|function)$`, words[0])
	some word in array.slice(words, 1, count(words))
	regex.match(`(^|[^.])cupcake`, lower(word))
}

runs_the_gate(words) if startswith(lower(words[0]), "/opt/cupcake")

allowed(words) if {
	some start in config.allowed_commands
	startswith(concat(" ", words), start)
}
