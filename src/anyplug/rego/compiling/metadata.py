"""What METADATA comments say of each rule, as `rego.metadata.chain` and `rego.metadata.rule` give it."""

from typing import Any

from anyplug.rego.parse.tree import Annotation, Module, Rule, Scalar
from anyplug.rego.values.json import from_json
from anyplug.rego.values.rego_errors import PARSE_ERROR, Fault
from anyplug.rego.values.values import Object


class Attached:
    """The annotations of a policy set, by what they belong to."""

    def __init__(self) -> None:
        self.packages: dict[tuple[str, ...], dict[str, Any]] = {}
        self.subpackages: dict[tuple[str, ...], dict[str, Any]] = {}
        self.documents: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.rules: dict[int, dict[str, Any]] = {}


def attach(modules: list[Module], faults: list[Fault]) -> Attached:
    """Find what each annotation belongs to: the next thing below it."""
    found = Attached()
    for module in modules:
        places: list[tuple[int, Rule | None]] = [(module.at.row, None)]
        places += [(rule.at.row, rule) for rule in module.rules]
        for note in module.annotations:
            below = [place for place in places if place[0] >= note.end_row]
            if not below:  # at the end of a file: it belongs to nothing
                continue
            _attach(found, module, note, min(below, key=lambda place: place[0])[1], faults)
    return found


def _attach(found: Attached, module: Module, note: Annotation, rule: Rule | None, faults: list[Fault]) -> None:
    scope = note.scope or ("package" if rule is None else "rule")
    content = {"scope": scope, **note.content}
    if (rule is None) != (scope in {"package", "subpackages"}):
        what = "package" if rule is None else "rule"
        faults.append(Fault(note.at, PARSE_ERROR, f"annotation scope {scope!r} cannot be applied to a {what}"))
    elif rule is None:
        (found.packages if scope == "package" else found.subpackages)[module.package] = content
    elif scope == "rule":
        found.rules[id(rule)] = content
    else:
        found.documents[_path(module, rule)] = content


def _path(module: Module, rule: Rule) -> tuple[Any, ...]:
    return (*module.package, *(part.value for part in rule.path if isinstance(part, Scalar)))


def chains(modules: list[Module], faults: list[Fault]) -> dict[int, tuple[tuple[Any, ...], Object]]:
    """Return for each rule, by its id, its chain and its own annotation."""
    attached = attach(modules, faults)
    made: dict[int, tuple[tuple[Any, ...], Object]] = {}
    for module in modules:
        for rule in module.rules:
            path = _path(module, rule)
            own = attached.rules.get(id(rule))
            entries: list[dict[str, Any]] = []
            if own is not None:
                entries.append({"path": list(path), "annotations": own})
            if path in attached.documents:
                entries.append({"path": list(path), "annotations": attached.documents[path]})
            if not entries:
                entries.append({"path": list(path)})
            if module.package in attached.packages:
                entries.append({"path": list(module.package), "annotations": attached.packages[module.package]})
            for length in range(len(module.package), 0, -1):
                above = module.package[:length]
                if above in attached.subpackages:
                    entries.append({"path": list(above), "annotations": attached.subpackages[above]})
            made[id(rule)] = (from_json(entries), from_json(own or {}))
    return made


def packages(modules: list[Module]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return every package, with what is said of it as plain values."""
    found = attach(modules, []).packages
    return {module.package: found.get(module.package, {}) for module in modules}
