"""A policy set into Python functions: one for each group of rules.

Reads every module, resolves names, orders bodies, refuses what is wrong or not supported, and writes the code.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from anyplug.policy.rego import builtins, groups, metadata, runtime, walk
from anyplug.policy.rego.builtins.operators import ORDERINGS
from anyplug.policy.rego.builtins.registry import Builtin
from anyplug.policy.rego.emitter import Emitter
from anyplug.policy.rego.errors import COMPILE_ERROR, PARSE_ERROR, BuiltinError, Fault, Location, RegoErrors
from anyplug.policy.rego.names import Names
from anyplug.policy.rego.parser import parse_module, parse_query
from anyplug.policy.rego.safety import Safety
from anyplug.policy.rego.syntax import ROOTS, Call, Expr, Module, Ref, Rule, Scalar, Term, Var, With
from anyplug.policy.rego.texts import rego_text
from anyplug.policy.rego.tree import Group, Node, Tree, below_data
from anyplug.policy.rego.values import EMPTY_SET, FALSE, NULL, TRUE, Object, Set

RECURSION: Final = "rego_recursion_error"
UNSUPPORTED: Final = "rego_not_supported"
INTERNAL: Final = "rego_internal_error"


def shown(value: Any) -> str:
    """Show a value in a template string."""
    if value is None:
        return "<undefined>"
    return value if value.__class__ is str else rego_text(value)


def holds(context: runtime.Context, name: str, where: int, *args: Any) -> bool:
    """Call a builtin whose quick form does not fit its arguments."""
    try:
        return builtins.TABLE[name].call(*args) is TRUE
    except BuiltinError as error:
        context.failed(error, name, where)
        return False


NAMESPACE: Final[dict[str, Any]] = {
    "BuiltinError": BuiltinError, "COLLECTIONS": runtime.COLLECTIONS, "COUNTED": frozenset({tuple, Object, Set, str}),
    "EMPTY_SET": EMPTY_SET, "FALSE": FALSE, "MISSING": runtime.MISSING, "NULL": NULL, "ONCE": runtime.ONCE,
    "Object": Object, "SEQUENCES": frozenset({tuple, Set}), "Set": Set, "TRUE": TRUE, "add_at": runtime.add_at,
    "add_member_at": runtime.add_member_at, "force": runtime.force, "frozen": runtime.frozen, "holds": holds,
    "look": runtime.look, "look_stored": runtime.look_stored, "member": runtime.member, "members": runtime.members,
    "pairs": runtime.pairs, "shown": shown, **ORDERINGS,
}  # fmt: skip


class Unit:
    """A policy set that is being compiled, and afterwards all that its code refers to."""

    def __init__(self, modules: Mapping[str, str], *, traced: bool = False) -> None:
        """Compile; what is `traced` notes each body that held, which the plain code does not pay for."""
        self.traced = traced
        self.faults: list[Fault] = []
        self.modules: list[Module] = []
        self.tree = Tree()
        self.root = self.tree.root
        self.namespace: dict[str, Any] = dict(NAMESPACE)
        self.terms: dict[Group, list[Term | With]] = {}  # everything that a group's rules say
        self.constants: dict[Any, str] = {}
        self.count = 0
        self.lock = threading.Lock()  # queries are compiled later, and maybe by several threads
        self.locations: list[Location] = []
        self.mocks: set[tuple[str, ...]] = set()
        self.patches: set[tuple[Any, ...]] = set()
        self.impure: dict[Group, set[str]] = {}  # calls whose answer does not depend on their arguments alone
        self.needs: dict[Group, set[Group]] = {}  # what the rules of each group may evaluate
        self.names: dict[tuple[str, ...], frozenset[str]] = {}
        self.notes: dict[tuple[str, ...], dict[str, Any]] = {}  # what METADATA says of each package
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
            self.check_calls()
            self.check_recursion()
            self.refuse()
            self.write()
            self.notes = metadata.packages(self.modules)
            self.release()
        except RegoErrors:
            raise
        except RecursionError:
            raise RegoErrors([Fault(_first(modules), UNSUPPORTED, "the policies are nested too deeply")]) from None
        except Exception as error:  # a fault of ours: whoever loads policies must see it as a refusal
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
        self.names = {package: frozenset(names) for package, names in packages.items()}
        arities = self.arities()
        chains = metadata.chains(self.modules, self.faults)

        def arity(name: tuple[str, ...]) -> int | None:
            if name[0] == "data":
                return arities.get(name[1:])
            found = builtins.TABLE.get(".".join(name))
            return None if found is None else found.arity

        for module in self.modules:
            resolver = Names(module, self.names[module.package], arity, chains)
            for rule in module.rules:
                self.tree.add(module.package, resolver.resolve_rule(rule))
            self.faults += resolver.faults
        self.tree.check()
        self.faults += self.tree.faults
        self.arity = arity

    def arities(self) -> dict[tuple[Any, ...], int]:
        """Say how many arguments each function takes, before names are resolved."""
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
            for rule in _rules(group):
                safety.rule(rule)
                terms = walk.of_rule(rule)
                self.terms.setdefault(group, []).extend(terms)
                for found in terms:
                    if isinstance(found, With):
                        self.replace(found)
        self.faults += safety.faults

    def replace(self, found: With) -> None:
        """Note what one `with` replaces."""
        if found.path[0] == "data":
            self.patches.add(found.path[1:])
        if found.path[0] != "input":
            self.mocks.add(found.path)

    def check_calls(self) -> None:
        """Refuse builtins that are not supported, unless they are only there to be replaced."""
        for group, terms in self.terms.items():
            for found in terms:
                self.check_call(found)
                if isinstance(found, Call) and found.name[0] != "data" and _builtin(found).impure:
                    self.impure.setdefault(group, set()).add(_builtin(found).name)

    def check_call(self, found: Term | With) -> None:
        """Look at one call."""
        if isinstance(found, Call) and found.name[0] != "data":
            builtin = _builtin(found)
            if builtin.refused and found.name not in self.mocks:
                self.faults.append(
                    Fault(found.at, UNSUPPORTED, f"the builtin {builtin.name} is not supported: {builtin.refused}")
                )

    def check_recursion(self) -> None:
        """Refuse rules that depend on themselves."""
        needs = self.needs = {group: self.needed(group) for group in self.tree.groups}
        state: dict[Group, int] = {}
        for start in self.tree.groups:
            stack: list[tuple[Group, list[Group]]] = [(start, list(needs[start]))] if start not in state else []
            state.setdefault(start, 1)
            while stack:
                group, left = stack[-1]
                if not left:
                    state[group] = 2
                    stack.pop()
                    continue
                following = left.pop()
                if state.get(following) == 1:
                    way = [each for each, _ in stack]
                    way = way[way.index(following) :] if following in way else way
                    names = " -> ".join(".".join(map(str, ("data", *each.path))) for each in [*way, following])
                    self.faults.append(Fault(_rules(following)[0].at, RECURSION, f"rule is recursive: {names}"))
                elif following not in state:
                    state[following] = 1
                    stack.append((following, list(needs[following])))

    def needed(self, group: Group) -> set[Group]:
        """Give the groups that a group's rules may evaluate."""
        return self.touched(self.terms.get(group, []))

    def touched(self, terms: list[Term | With]) -> set[Group]:
        """Give the groups that terms may evaluate."""
        found: set[Group] = set()
        for term in terms:
            if isinstance(term, Call | With):
                name = term.name if isinstance(term, Call) else term.function
                node = self.root.find(name[1:]) if name[:1] == ("data",) else None
                found |= {node.group} if node and node.group else set()
            elif isinstance(term, Ref | Var) and (path := below_data(term)) is not None:
                found |= {each for each in self.tree.reached(path) if each.kind != "function"}
        return found

    def impurities(self, path: str) -> frozenset[str]:
        """Name the builtins behind a reference whose answer may be another one next time. Raises RegoErrors."""
        with self.lock:
            body, _ = self.checked_query(f"x := {path}")
        terms = walk.of_body(body)
        found = {_builtin(term).name for term in terms if isinstance(term, Call) and term.name[0] != "data"}
        found = {name for name in found if builtins.TABLE[name].impure}
        waiting = list(self.touched(terms))
        seen: set[Group] = set()
        while waiting:
            group = waiting.pop()
            if group not in seen:
                seen.add(group)
                found |= self.impure.get(group, set())
                waiting += self.needs.get(group, ())
        return frozenset(found)

    def write(self) -> None:
        """Write and run the code, and hand the functions to the tree."""
        for group in self.tree.groups:
            try:
                self.namespace[group.name] = self.later(
                    group.name, "\n".join(groups.write(self, group, traced=self.traced))
                )
            except RegoErrors as error:
                self.faults += error.faults
        self.refuse()
        for node in self.root.nodes():
            if node.group is not None and not node.function:
                node.evaluate = self.named(node.group.name)
            if node.partial is not None:
                node.dynamic = self.named(node.partial.name)
                if not node.children:
                    node.evaluate, node.dynamic = node.dynamic, None

    def later(self, name: str, source: str) -> Callable[..., Any]:
        """Give a function that runs its code when it is first called: most policies of a set rarely are."""

        def first(*args: Any) -> Any:
            self.run(source)
            return self.namespace[name](*args)

        return first

    def named(self, name: str) -> Callable[[Any], Any]:
        """Give a function that calls what the code calls by that name, then or now."""
        namespace = self.namespace

        def evaluate(context: Any) -> Any:
            return namespace[name](context)

        return evaluate

    def release(self) -> None:
        """Let go of the trees: what was compiled does without, and the garbage collector has less to look at."""
        self.modules.clear()
        self.terms.clear()
        for group in self.tree.groups:
            group.rules.clear()
            group.default = None
        self.constants.clear()

    def run(self, source: str) -> None:
        """Run generated code: it holds only names of ours and constants, whatever the policies say."""
        exec(compile(source, "<rego>", "exec"), self.namespace)  # noqa: S102 - see above

    # What the emitter asks.

    def constant(self, value: Any) -> str:
        """Give the name of a constant."""
        key = (value.__class__, repr(value)) if not isinstance(value, str) else (str, value)
        name = self.constants.get(key)
        if name is None:
            self.count += 1
            name = self.constants[key] = f"K{self.count}"
            self.namespace[name] = value
        return name

    def location(self, at: Location) -> int:
        """Give the number of a place."""
        self.locations.append(at)
        return len(self.locations) - 1

    def builtin(self, name: tuple[str, ...], *, adapted: bool = False) -> tuple[str, bool, bool]:
        """Give a builtin's name in the code, whether it takes the context, and whether it gives several answers."""
        found = builtins.TABLE[".".join(name)]
        code = "b_" + "_".join(name) + ("_adapted" if adapted else "")
        if code not in self.namespace:
            self.namespace[code] = found.adapted if adapted else found.call
        return code, found.context, found.many

    def mocked(self, name: tuple[str, ...]) -> bool:
        """Whether some `with` replaces a function; documents above it do, too."""
        return name in self.mocks

    def patched(self, path: tuple[Any, ...]) -> bool:
        """Whether some `with` replaces a document at or above a path."""
        return any(path[: len(patch)] == patch for patch in self.patches)

    def node(self, node: Node) -> str:
        """Give the name of a node of the tree."""
        name = f"N{id(node)}"
        self.namespace[name] = node
        return name

    # Queries.

    def query(self, text: str) -> tuple[Any, list[str]]:
        """Compile a query: gives a function that takes a context and a list for the answers, and the names of these."""
        with self.lock:
            return self.compiled(text)

    def compiled(self, text: str) -> tuple[Any, list[str]]:
        """Compile a query, while nobody else does."""
        made, names = self.checked_query(text)
        self.run("\n".join(self.answers(made, names)))
        return self.namespace.pop("query"), list(names)

    def checked_query(self, text: str) -> tuple[list[Expr], dict[str, str]]:
        """Read, resolve and order a query; gives its body, and its variables that get a value. Raises RegoErrors."""
        body = parse_query(text)
        resolver = Names(None, frozenset(), self.arity)
        made, names = resolver.resolve_query(body)
        self.faults += resolver.faults
        safety = Safety()
        bound = safety.body(made, frozenset(), Location("query", 1, 1))
        self.faults += safety.faults
        for found in walk.of_body(made):
            self.check_call(found)
            if isinstance(found, With) and found.path[0] != "input" and found.path not in self.mocks:
                self.faults.append(
                    Fault(found.at, UNSUPPORTED, "a query may replace only input, and what the policies replace, too")
                )
        faults, self.faults = self.faults, []
        if faults:
            raise RegoErrors(faults)
        return made, {name: own for name, own in names.items() if own in bound}

    def together(self, paths: tuple[str, ...]) -> Any:
        """Compile references into one function, which gives a value or None for each."""
        with self.lock:
            emitter = Emitter(self, "return None", {})
            values: list[str] = []
            for path in paths:
                body, own = self.checked_query(f"x := {path}")
                values.append(emitter.value(body, own["x"], Location("query", 1, 1)))
            emitter.line(f"return ({''.join(value + ', ' for value in values)})")
            self.run("\n".join(["def query(c):", *emitter.lines]))
            return self.namespace.pop("query")

    def answers(self, body: list[Expr], names: dict[str, str]) -> list[str]:
        """Write a query."""
        emitter = Emitter(self, "return", {})
        emitter.body(body)
        values = "".join(emitter.local[own] + ", " for own in names.values())
        emitter.line(f"out.append(({values}))")
        return ["def query(c, out):", *emitter.lines]


def _rules(group: Group) -> list[Rule]:
    return [*group.rules, group.default] if group.default else group.rules


def _builtin(call: Call) -> Builtin:
    return builtins.TABLE[".".join(call.name)]


def _first(modules: Mapping[str, str]) -> Location:
    return Location(next(iter(modules), ""), 1, 1)
