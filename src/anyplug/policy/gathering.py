"""Detect whether an evaluate.rego only gathers what rules named after verbs return.

It does if it contains nothing that could choose (no input, no other data, no text but verbs and keys, no builtin but
those for walking and counting), and if it gathers a sample correctly.
"""

from typing import Any, Final

import msgspec

from anyplug.policy.decisions import KEYS, VERBS
from anyplug.rego import RegoError
from anyplug.rego import compile as compile_rego
from anyplug.rego.parse.tree import Call, Module, Ref, Scalar, Var
from anyplug.rego.parse.walk import of_rule

UNREMARKABLE: Final = frozenset({"walk", "count", "minus", "equal", "eq", "array.concat", "union", "is_set"})
WORDS: Final = frozenset({*VERBS, *KEYS, "allow_override", "allow_overrides"})
SAMPLE: Final = """
package {root}.sample.{name}
import rego.v1
halt contains {{"rule_id": "{name}1"}}
deny contains {{"rule_id": "{name}2"}}
deny contains {{"rule_id": "{name}3", "reason": ["x"]}}
block contains {{"rule_id": "{name}4"}}
ask contains {{"rule_id": "{name}5"}}
modify contains {{"rule_id": "{name}6"}}
add_context contains "{name}7"
other contains "{name}8"
"""
SAMPLES: Final = ("one", "two.three")
EXPECTED: Final = {"halt": 1, "deny": 2, "block": 1, "ask": 1, "modify": 1, "add_context": 1}  # of each sample


def defines(modules: dict[str, Module], entry: tuple[str, ...]) -> bool:
    """Return whether some module defines what a path names."""
    return any(
        module.package == entry[:-1] and [getattr(part, "value", None) for part in rule.path] == [entry[-1]]
        for module in modules.values()
        for rule in module.rules
    )


def is_usual(texts: dict[str, str], modules: dict[str, Module], entry: tuple[str, ...], root: tuple[str, ...]) -> bool:
    """Return whether the modules of the entry's package only gather what is below `root`."""
    own = {file: module for file, module in modules.items() if module.package == entry[:-1]}
    names = frozenset(
        str(part.value) for module in own.values() for rule in module.rules for part in rule.path[:1]
        if isinstance(part, Scalar)
    )  # fmt: skip
    if not all(_cannot_choose(module, root, names) for module in own.values()):
        return False
    samples = {f"sample/{name}": SAMPLE.format(root=".".join(root), name=name) for name in SAMPLES}
    try:
        given = compile_rego({**{file: texts[file] for file in own}, **samples}).eval("data." + ".".join(entry), {})
    except RegoError:
        return False
    return isinstance(given, dict) and all(
        _counts(given[key]) == EXPECTED[verb] * len(SAMPLES) for key, verb in KEYS.items() if key in given
    )


def _counts(value: Any) -> int:
    return len({msgspec.json.encode(item) for item in value}) if isinstance(value, list) else -1


def _cannot_choose(module: Module, root: tuple[str, ...], names: frozenset[str]) -> bool:
    if any(each.path[0] not in {"rego", "future"} for each in module.imports):
        return False
    return all(_is_harmless(term, root, names) for rule in module.rules for term in of_rule(rule))


def _is_harmless(term: Any, root: tuple[str, ...], names: frozenset[str]) -> bool:
    if isinstance(term, Ref) and isinstance(term.head, Var) and term.head.name == "data":
        return tuple(getattr(part, "value", None) for part in term.path[: len(root)]) == root
    if isinstance(term, Call):
        return ".".join(term.name) in UNREMARKABLE or term.name[0] in names
    if isinstance(term, Scalar) and isinstance(term.value, str):
        return term.value in WORDS or term.value in names or term.value in root
    return not (isinstance(term, Var) and term.name == "input")
