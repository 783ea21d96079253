"""Lines of Python, written one after another: depth, loops, names, and what failing means at each point."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from anyplug.rego.compiling.namespace import Namespace
from anyplug.rego.values.rego_errors import NOT_SUPPORTED, Fault, Location, RegoErrors

MAX_BLOCKS: Final = 17  # Python takes 20 nested loops; some are for what stands inside
MAX_INDENT: Final = 80  # Python takes 100


class State(NamedTuple):
    """What is restored behind a closure."""

    depth: int
    fail: str
    loops: int
    bound: frozenset[str]
    context: str
    known: Mapping[tuple[Any, ...], str]


class Writer:
    """Writes the lines of one Python function."""

    def __init__(self, names: Namespace, fail: str, bound: Mapping[str, str]) -> None:
        self.names = names
        self.lines: list[str] = []
        self.depth = 1
        self.fail = fail
        self.loops: list[int] = []
        self.bound = frozenset(bound)
        self.local = dict(bound)
        self.context = "c"
        self.known: dict[tuple[Any, ...], str] = {}
        self.count = 0

    def line(self, text: str) -> None:
        """Write a line at the current depth."""
        self.lines.append(" " * self.depth + text)

    def temp(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"t{self.count}"

    def keep(self, code: str) -> str:
        """Return a name for what code gives."""
        name = self.temp()
        self.line(f"{name} = {code}")
        return name

    def check(self, condition: str) -> None:
        """Fail if a condition holds."""
        self.line(f"if {condition}: {self.fail}")

    def loop(self, header: str, at: Location) -> None:
        """Open a loop: what is written from here stands inside."""
        if len(self.loops) >= MAX_BLOCKS or self.depth >= MAX_INDENT:
            message = f"more than {MAX_BLOCKS} iterations inside each other are not supported"
            raise RegoErrors([Fault(at, NOT_SUPPORTED, message)])
        self.line(header)
        self.loops.append(self.depth)
        self.depth += 1
        self.fail = "continue"

    def save(self) -> State:
        """Remember where a closure begins."""
        return State(self.depth, self.fail, len(self.loops), self.bound, self.context, dict(self.known))

    def restore(self, state: State, found: str = "") -> None:
        """Close what was opened since; the loops are left as soon as the condition `found` holds."""
        while len(self.loops) > state.loops:
            self.depth = self.loops.pop()
            if found and len(self.loops) > state.loops:
                self.line(f"if {found}: break")
        self.depth, self.fail, _, self.bound, self.context, known = state
        self.known = dict(known)
