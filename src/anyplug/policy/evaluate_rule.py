"""The default `evaluate` rule, which gathers the decisions of all policies."""

from typing import Final

EVALUATE: Final = """\
package cupcake.system

import rego.v1

# Gathers what every rule named after a verb gives, in every package below data.cupcake.policies.
evaluate := {
	"halts": gathered("halt"),
	"denials": gathered("deny"),
	"blocks": gathered("block"),
	"asks": gathered("ask"),
	"modifications": gathered("modify"),
	"add_context": gathered("add_context"),
}

gathered(verb) := [decision |
	walk(data.cupcake.policies, [path, decisions])
	path[count(path) - 1] == verb
	some decision in decisions
]
"""


def of_all_projects(evaluate: str) -> str:
    """Return an evaluate.rego adapted to gather the user's own policies."""
    moved = evaluate.replace("package cupcake.system", "package cupcake.global.system")
    return moved.replace("data.cupcake.policies", "data.cupcake.global.policies")
