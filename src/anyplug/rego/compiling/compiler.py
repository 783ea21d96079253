"""A policy set into Python functions: one for each group of rules.

Reads every module, resolves names, orders bodies, refuses what is wrong or not supported, and writes the code.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final

from anyplug.rego.builtins import every
from anyplug.rego.compiling import metadata, write_rules
from anyplug.rego.compiling.dependencies import Dependencies, builtin_of
from anyplug.rego.compiling.names import Names
from anyplug.rego.compiling.namespace import Namespace
from anyplug.rego.compiling.safety import Safety
from anyplug.rego.compiling.write_bodies import Emitter
from anyplug.rego.evaluate.rule_tree import Group, Tree
from anyplug.rego.generated.code import Code
from anyplug.rego.parse import walk
from anyplug.rego.parse.modules import parse_module, parse_query
from anyplug.rego.parse.tree import ROOTS, Call, Expr, Module, Scalar, Term, With
from anyplug.rego.values.rego_errors import COMPILE_ERROR, NOT_SUPPORTED, PARSE_ERROR, Fault, Location, RegoErrors

INTERNAL: Final = "rego_internal_error"


class Unit:
    """A policy set that is being compiled, and afterwards all that its code refers to."""

    def __init__(self, modules: Mapping[str, str], *, traced: bool = False) -> None:
        """Compile; what is `traced` notes each body that held, which the plain code does not pay for."""
        self.traced = traced
        self.faults: list[Fault] = []
        self.modules: list[Module] = []
        self.tree = Tree()
        self.namespace = Namespace(self.tree.root)
        self.terms: dict[Group, list[Term | With]] = {}  # everything that a group's rules say
        self.notes: dict[tuple[str, ...], dict[str, Any]] = {}  # what METADATA says of each package
        self.lock = threading.Lock()  # queries are compiled later, and maybe by several threads
        self.load(modules)

    # The steps.

    def load(self, modules: Mapping[str, str]) -> None:
        """Do everything; raises RegoErrors with all that was found by the step that found something."""
        for file, text in modules.items():
            try:
                self.modules.append(parse_module(file, text))
            except RegoErrors as error:
                self.faults += error.faults
            except RecursionError:
                self.faults.append(Fault(Location(file, 1, 1), PARSE_ERROR, "nested too deeply"))
        self.refuse()
        try:
            self.resolve()
            self.refuse()
            self.order()
            self.refuse()
            self.check()
            self.refuse()
            self.write()
            self.notes = metadata.packages(self.modules)
            self.release()
        except RegoErrors:
            raise
        except RecursionError:
            raise RegoErrors([Fault(_first(modules), NOT_SUPPORTED, "the policies are nested too deeply")]) from None
        except Exception as error:  # a fault of ours: it must count as a refusal of the policies
            message = f"{type(error).__name__}: {error}"
            raise RegoErrors([Fault(_first(modules), INTERNAL, message)]) from error

    def refuse(self) -> None:
        """Raise what was found so far."""
        if self.faults:
            raise RegoErrors(
                sorted(set(self.faults), key=lambda fault: (fault.where.file, fault.where.row, fault.where.col))
            )

    def resolve(self) -> None:
        """Resolve names, and put rules into the tree."""
        packages: dict[tuple[str, ...], set[str]] = {}
        for module in self.modules:
            names = packages.setdefault(module.package, set())
            self.tree.package(module.package)
            for rule in module.rules:
                first = rule.path[0]
                assert isinstance(first, Scalar)
                names.add(first.value)
                if first.value in ROOTS:
                    self.faults.append(Fault(rule.at, COMPILE_ERROR, f"rules must not shadow {first.value}"))
        rules = {package: frozenset(names) for package, names in packages.items()}
        arities = self.arities()
        chains = metadata.chains(self.modules, self.faults)

        def arity(name: tuple[str, ...]) -> int | None:
            if name[0] == "data":
                return arities.get(name[1:])
            found = every.TABLE.get(".".join(name))
            return None if found is None else found.arity

        for module in self.modules:
            resolver = Names(module, rules[module.package], arity, chains)
            for rule in module.rules:
                self.tree.add(module.package, resolver.resolve_rule(rule))
            self.faults += resolver.faults
        self.tree.check()
        self.faults += self.tree.faults
        self.arity = arity

    def arities(self) -> dict[tuple[Any, ...], int]:
        """Return how many arguments each function takes, before names are resolved."""
        return {
            (*module.package, *(part.value for part in rule.path if isinstance(part, Scalar))): len(rule.args)
            for module in self.modules
            for rule in module.rules
            if rule.args is not None
        }

    def order(self) -> None:
        """Order bodies, and note what `with` replaces."""
        safety = Safety()
        for group in self.tree.groups:
            for rule in group.every_rule:
                safety.rule(rule)
                terms = walk.of_rule(rule)
                self.terms.setdefault(group, []).extend(terms)
                for found in terms:
                    if isinstance(found, With):
                        self.namespace.replace(found)
        self.faults += safety.faults

    def check(self) -> None:
        """Refuse builtins that are not supported, and rules that depend on themselves."""
        for terms in self.terms.values():
            for found in terms:
                if isinstance(found, Call):
                    self.faults += self.unsupported(found)
        self.dependencies = Dependencies(self.tree, self.terms)
        self.faults += self.dependencies.recursions()

    def unsupported(self, call: Call) -> list[Fault]:
        """Look at one call: a builtin that is not supported may only be there to be replaced."""
        builtin = builtin_of(call)
        if builtin is None or not builtin.refused or self.namespace.mocked(call.name):
            return []
        return [Fault(call.at, NOT_SUPPORTED, f"the builtin {builtin.name} is not supported: {builtin.refused}")]

    def write(self) -> None:
        """Write the code, and hand the functions to the tree."""
        for group in self.tree.groups:
            try:
                lines = write_rules.write(self.namespace, group, traced=self.traced)
                self.namespace.code.function(group.name, "\n".join(lines))
            except RegoErrors as error:
                self.faults += error.faults
        self.refuse()
        for node in self.tree.root.nodes():
            calls = node.group.name if node.group is not None and not node.function else ""
            partially = node.partial.name if node.partial is not None else ""
            if partially and not node.children:
                calls, partially = partially, ""
            node.take(self.namespace.code.named, calls, partially)

    def release(self) -> None:
        """Release the trees: what was compiled does without, and the garbage collector has less to look at."""
        self.modules.clear()
        self.terms.clear()
        for group in self.tree.groups:
            group.rules.clear()
            group.default = None
        self.namespace.forget_constants()

    # Queries.

    def query(self, text: str) -> tuple[Any, list[str]]:
        """Compile a query to a function that takes a context and a list for the answers, and the names of these.

        Raises RegoErrors.
        """
        with self.lock:
            body, names = self.checked_query(text)
            emitter = Emitter(self.namespace, "return", {})
            emitter.body(body)
            values = "".join(emitter.local[own] + ", " for own in names.values())
            emitter.line(f"out.append(({values}))")
            return self.namespace.query(["def query(c, out):", *emitter.lines]), list(names)

    @property
    def code(self) -> Code:
        """What evaluating the policies needs."""
        return self.namespace.code

    def impurities(self, path: str) -> frozenset[str]:
        """Name the builtins behind a reference whose answer may be another one next time. Raises RegoErrors."""
        if (node := self.code.plain(path)) is not None and (group := node.group or node.partial) is not None:
            return self.dependencies.behind({group})
        body, _ = self.checked_query(f"x := {path}")
        return self.dependencies.impurities(walk.of_body(body))

    def checked_query(self, text: str) -> tuple[list[Expr], dict[str, str]]:
        """Read, resolve and order a query; return its body, and its variables that get a value. Raises RegoErrors."""
        resolver = Names(None, frozenset(), self.arity)
        body, names = resolver.resolve_query(parse_query(text))
        safety = Safety()
        bound = safety.body(body, frozenset())
        faults = [*resolver.faults, *safety.faults]
        for found in walk.of_body(body):
            if isinstance(found, Call):
                faults += self.unsupported(found)
            elif isinstance(found, With) and found.path[0] != "input" and found.path not in self.namespace.mocks:
                message = "a query may replace only input, and what the policies replace, too"
                faults.append(Fault(found.at, NOT_SUPPORTED, message))
        if faults:
            raise RegoErrors(faults)
        return body, {name: own for name, own in names.items() if own in bound}


def _first(modules: Mapping[str, str]) -> Location:
    return Location(next(iter(modules), ""), 1, 1)
