"""What rules need of each other: which may evaluate which, in no circle, and which builtins lie behind them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anyplug.rego.builtins import every
from anyplug.rego.builtins.builtin_table import Builtin
from anyplug.rego.evaluate.rule_tree import Group, Tree, below_data
from anyplug.rego.parse.tree import Call, Ref, Term, Var, With
from anyplug.rego.values.rego_errors import Fault

RECURSION: Final = "rego_recursion_error"


class Dependencies:
    """What the rules of each group may evaluate."""

    def __init__(self, tree: Tree, terms: Mapping[Group, list[Term | With]]) -> None:
        """Take everything that the rules of each group say."""
        self.tree = tree
        self.needs = {group: self.touched(terms.get(group, [])) for group in tree.groups}
        found = {group: _impure(said) for group, said in terms.items()}
        self.impure = {group: names for group, names in found.items() if names}

    def touched(self, terms: list[Term | With]) -> set[Group]:
        """Return the groups that terms may evaluate."""
        found: set[Group] = set()
        for term in terms:
            if isinstance(term, Call | With):
                name = term.name if isinstance(term, Call) else term.function
                node = self.tree.root.find(name[1:]) if name[:1] == ("data",) else None
                found |= {node.group} if node and node.group else set()
            elif isinstance(term, Ref | Var) and (path := below_data(term)) is not None:
                found |= {each for each in self.tree.reached(path) if each.kind != "function"}
        return found

    def recursions(self) -> Iterator[Fault]:
        """Find rules that depend on themselves."""
        state: dict[Group, int] = {}
        for start in self.tree.groups:
            stack: list[tuple[Group, list[Group]]] = [(start, list(self.needs[start]))] if start not in state else []
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
                    yield Fault(following.every_rule[0].at, RECURSION, f"rule is recursive: {names}")
                elif following not in state:
                    state[following] = 1
                    stack.append((following, list(self.needs[following])))

    def impurities(self, terms: list[Term | With]) -> frozenset[str]:
        """Name the builtins behind terms whose answer does not depend on their arguments alone."""
        return frozenset(_impure(terms)) | self.behind(self.touched(terms))

    def behind(self, groups: Iterable[Group]) -> frozenset[str]:
        """Name the builtins behind groups whose answer does not depend on their arguments alone."""
        found: set[str] = set()
        waiting = list(groups)
        seen: set[Group] = set()
        while waiting:
            group = waiting.pop()
            if group not in seen:
                seen.add(group)
                found |= self.impure.get(group, set())
                waiting += self.needs.get(group, ())
        return frozenset(found)


def builtin_of(call: Call) -> Builtin | None:
    """Return the builtin that is called; empty if it is a function."""
    return every.TABLE[".".join(call.name)] if call.name[0] != "data" else None


def _impure(terms: list[Term | With]) -> set[str]:
    called = (builtin_of(term) for term in terms if isinstance(term, Call))
    return {builtin.name for builtin in called if builtin is not None and builtin.impure}
