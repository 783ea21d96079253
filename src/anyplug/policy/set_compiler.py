"""Compile a set of policies: parse, route, check, and find out what is known before any event.

The parser and the compiler take a third of a short command's time to import, so only this module imports them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from anyplug.policy import gathering, routing
from anyplug.policy.evaluate_rule import EVALUATE, of_all_projects
from anyplug.policy.reach import is_plain, parts, read_keys, rule_rows, verb_of
from anyplug.policy.routing import Policy
from anyplug.policy.set_facts import OURS, THEIRS, Facts, Origin, Texts, short
from anyplug.rego import Fault, Location, Policies, RegoErrors
from anyplug.rego import compile as compile_rego
from anyplug.rego.parse.modules import parse_module
from anyplug.rego.parse.tree import Module
from anyplug.rego.values.rego_errors import PARSE_ERROR

MISSING: Final = "policy_missing"
MISPLACED: Final = "policy_package_error"
INIT: Final = "create one with `anyplug policy init`, with --global for all projects"
EVALUATE_FILE: Final = "builtin/evaluate.rego"  # ours, if there is none and none is needed


def compiled(given: Texts, faults: Iterable[Fault] = ()) -> tuple[Facts, Policies]:
    """Compile; raises RegoErrors with everything that is wrong, by file and line."""
    texts = dict(given.texts)
    found = list(faults)
    modules = _parsed(texts, found)
    policies = tuple(_routed({file: modules[file] for file in given.deciding if file in modules}, found))
    root = tuple((THEIRS if given.is_global else OURS).split("."))
    entry = tuple(given.system.split(".")[1:])
    if not found and not gathering.defines(modules, entry):
        if given.needs_evaluate and any(not policy.builtin for policy in policies):
            where = Location(next(iter(given.deciding), ""), 1, 1)
            found.append(Fault(where, MISSING, f"there is no evaluate.rego that defines {given.system}; {INIT}"))
        texts[EVALUATE_FILE] = of_all_projects(EVALUATE) if given.is_global else EVALUATE
        modules[EVALUATE_FILE] = parse_module(EVALUATE_FILE, texts[EVALUATE_FILE])
    if found:
        raise RegoErrors(sorted(found, key=lambda fault: (fault.where.file, fault.where.row)))
    made = compile_rego(texts)
    keys = [read_keys(module) for module in modules.values()]
    ours = [module for file, module in modules.items() if file in given.deciding]
    is_usual = gathering.is_usual(texts, modules, entry, root)
    astray = [module for module in ours if module.package[: len(root)] != root and parts(module)]
    if is_usual and astray:
        raise RegoErrors([Fault(module.at, MISPLACED, _astray(module)) for module in astray])
    refs = {given.system, *(part.ref for policy in policies for part in policy.parts)}
    facts = Facts(
        policies=policies,
        texts=texts,
        reads=None if None in keys else frozenset[str]().union(*(some for some in keys if some)),
        origins=_origins(policies, modules),
        hidden=_hidden(policies, modules),
        impure=frozenset(ref for ref in refs if made.impurities(ref)),
        is_direct=is_usual and all(is_plain(module) for module in ours),
    )
    return facts, made


def _parsed(texts: dict[str, str], faults: list[Fault]) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for file, text in texts.items():
        try:
            modules[file] = parse_module(file, text)
        except RegoErrors as error:
            faults += error.faults
        except RecursionError:
            faults.append(Fault(Location(file, 1, 1), PARSE_ERROR, "nested too deeply"))
    return modules


def _routed(modules: dict[str, Module], faults: list[Fault]) -> Iterator[Policy]:
    for file, module in modules.items():
        if routing.is_system(module.package):
            continue
        notes, route = routing.read(module)
        if isinstance(route, Fault):
            faults.append(route)
            continue
        custom = notes.get("custom", {})
        name = ".".join(module.package)
        yield Policy(
            name=name,
            file=file,
            title=str(notes.get("title", "")),
            severity=str(custom.get("severity", "")) if isinstance(custom, dict) else "",
            route=route,
            parts=tuple(parts(module)),
            builtin=file.removeprefix("builtin/").removesuffix(".rego") if file.startswith("builtin/") else "",
        )


def _origins(policies: Iterable[Policy], modules: dict[str, Module]) -> dict[str, Origin]:
    """Return where the rules of each reference are: a rule with an id, else where it has the id from."""
    found: dict[str, Origin] = {}
    count = Counter(part.ref for policy in policies for part in policy.parts)
    for policy in policies:
        for part in policy.parts:
            origin = found.setdefault(part.ref, Origin(short(policy.name), {}))
            for rule in part.rule_ids:
                origin.places.setdefault(rule, (part.file, part.row))
    for policy in policies:
        for part in policy.parts:
            if count[part.ref] > 1 and not part.rule_ids:  # it is unknown which of them it was
                for rule, row in rule_rows(modules[policy.file]).items():
                    found[part.ref].places.setdefault(rule, (part.file, row))
    return found


def _hidden(policies: Iterable[Policy], modules: dict[str, Module]) -> dict[str, tuple[str, str, int]]:
    """Return where decisions are that are not members of a verb's set: by their rule's id, else by the verb."""
    found: dict[str, tuple[str, str, int]] = {}
    for policy in policies:
        module = modules[policy.file]
        for rule, row in rule_rows(module).items():
            found.setdefault(f"rule {rule}", (short(policy.name), policy.file, row))
        for each in module.rules:
            if verb := verb_of(each):
                found.setdefault(f"verb {verb}", (short(policy.name), policy.file, each.at.row))
    return found


def _astray(module: Module) -> str:
    name = ".".join(module.package)
    return f"its package is {name}, but must be below {OURS}, or it is never evaluated"
