"""The tree below `data` that rules span: which rules lie where, and what a reference can reach."""

from collections.abc import Callable, Iterator
from typing import Any

from anyplug.rego.parse.tree import Ref, Rule, Scalar, Term
from anyplug.rego.values.rego_errors import COMPILE_ERROR, TYPE_ERROR, Fault


class Group:
    """The rules of one path: a complete rule, a partial set, a function, or rules with variables in their heads."""

    def __init__(self, number: int, kind: str, path: tuple[Any, ...]) -> None:
        self.number = number
        self.kind = kind  # complete, set, function, dynamic
        self.path = path
        self.rules: list[Rule] = []
        self.default: Rule | None = None

    @property
    def name(self) -> str:
        """Return the name under which generated code calls it."""
        return f"g{self.number}"

    @property
    def every_rule(self) -> list[Rule]:
        """Return its rules, and its default last."""
        return [*self.rules, self.default] if self.default else self.rules

    @property
    def arity(self) -> int:
        """Return how many arguments it takes."""
        return len(self.every_rule[0].args or [])


class Node:
    """One place in the tree."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path
        self.children: dict[Any, Node] = {}
        self.group: Group | None = None
        self.partial: Group | None = None  # rules whose heads go on with variables from here
        self.calls = ""  # the function that evaluates its rules, once it is compiled; not for functions
        self.called_partially = ""
        self.evaluate: Callable[[Any], Any] | None = None
        self.dynamic: Callable[[Any], Any] | None = None
        self.function = False
        self.depths: frozenset[int] = frozenset()  # how far below here the values of its partial rules stand

    def child(self, key: Any) -> "Node":
        """Return a child, made if need be."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Node((*self.path, key))
        return found

    def take(self, named: Callable[[str], Callable[[Any], Any]], calls: str, partially: str) -> None:
        """Take the functions that evaluate its rules, by their names; empty: there is none."""
        self.calls, self.called_partially = calls, partially
        self.evaluate = named(calls) if calls else None
        self.dynamic = named(partially) if partially else None

    def find(self, path: tuple[Any, ...]) -> "Node | None":
        """Return the node at a path."""
        node = self
        for part in path:
            found = node.children.get(part)
            if found is None:
                return None
            node = found
        return node

    def groups(self) -> Iterator[Group]:
        """Return every group here and below."""
        if self.group:
            yield self.group
        if self.partial:
            yield self.partial
        for child in self.children.values():
            yield from child.groups()

    def nodes(self) -> "Iterator[Node]":
        """Return every node here and below."""
        yield self
        for child in self.children.values():
            yield from child.nodes()


class Tree:
    """All rules of a policy set."""

    def __init__(self) -> None:
        self.root = Node(())
        self.groups: list[Group] = []
        self.faults: list[Fault] = []

    def package(self, path: tuple[str, ...]) -> None:
        """Make sure that a package is there, even an empty one."""
        node = self.root
        for part in path:
            node = node.child(part)

    def add(self, package: tuple[str, ...], rule: Rule) -> None:
        """Put a rule where its head says."""
        node = self.root
        for part in package:
            node = node.child(part)
        ground = 0
        for term in rule.path:
            if not isinstance(term, Scalar):
                break
            node = node.child(term.value)
            ground += 1
        if ground < len(rule.path):
            if rule.args is not None:
                self.faults.append(Fault(rule.at, COMPILE_ERROR, "the name of a function must be constant"))
                return
            node.depths |= {len(rule.path) - ground}
            self.into("dynamic", node, rule)
        else:
            self.into("function" if rule.args is not None else "set" if rule.member else "complete", node, rule)

    def into(self, kind: str, node: Node, rule: Rule) -> None:
        """Add a rule to the group of its node, and check that they are of one kind."""
        group = node.partial if kind == "dynamic" else node.group
        if group is None:
            group = Group(len(self.groups), kind, node.path)
            self.groups.append(group)
            if kind == "dynamic":
                node.partial = group
            else:
                node.group = group
                node.function = kind == "function"
        name = ".".join(map(str, ("data", *node.path)))
        if group.kind != kind:
            self.faults.append(Fault(rule.at, TYPE_ERROR, f"conflicting rules {name} found"))
            return
        others = group.every_rule
        if kind == "function" and others and len(others[0].args or []) != len(rule.args or []):
            self.faults.append(
                Fault(rule.at, TYPE_ERROR, f"conflicting rules {name} found: different numbers of arguments")
            )
            return
        if not rule.default:
            group.rules.append(rule)
        elif group.default is not None:
            self.faults.append(Fault(rule.at, TYPE_ERROR, f"multiple default rules {name} found"))
        elif kind == "set":
            self.faults.append(Fault(rule.at, TYPE_ERROR, f"conflicting rules {name} found"))
        else:
            group.default = rule

    def check(self) -> None:
        """Refuse rules that lie below the value of another."""
        for node in self.root.nodes():
            below = [group for child in node.children.values() for group in child.groups()]
            if node.group is not None and (below or node.partial):
                inner = below[0] if below else node.partial
                assert inner is not None
                if node.group.kind == "function" and not node.partial:
                    continue
                name, other = (".".join(map(str, ("data", *path))) for path in (node.path, inner.path))
                self.faults.append(Fault(inner.every_rule[0].at, TYPE_ERROR, f"rule {name} conflicts with {other}"))

    def reached(self, path: list[Term]) -> set[Group]:
        """Return the groups that a reference below `data` may evaluate."""
        found: set[Group] = set()
        nodes = [self.root]
        for part in path:
            following: list[Node] = []
            for node in nodes:
                if node.partial:
                    found.add(node.partial)
                if node.group:
                    found.add(node.group)
                elif isinstance(part, Scalar):
                    child = node.children.get(part.value)
                    following += [child] if child else []
                else:
                    following += node.children.values()
            nodes = following
        for node in nodes:
            found.update(node.groups())
        return found


def below_data(term: Term) -> list[Term] | None:
    """Return the path of a reference to `data`; None for every other term."""
    if isinstance(term, Ref) and getattr(term.head, "name", None) == "data":
        return term.path
    return [] if getattr(term, "name", None) == "data" else None
