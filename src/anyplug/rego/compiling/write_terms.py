"""Terms into Python source: code that gives a term's value, or leaves by the way that stands for failure."""

from abc import ABC, abstractmethod
from typing import Any, Final

from anyplug.rego.compiling.safety import in_pattern, in_term, in_turn
from anyplug.rego.compiling.write_lines import Writer
from anyplug.rego.evaluate.rule_tree import Node
from anyplug.rego.parse.tree import (  # fmt: skip
    Array,
    Call,
    Comprehension,
    Expr,
    ObjectLiteral,
    Ref,
    Scalar,
    SetLiteral,
    Template,
    Term,
    Var,
)
from anyplug.rego.values.rego_errors import TYPE_ERROR, Fault, Location, RegoErrors
from anyplug.rego.values.values import FALSE, NULL, TRUE, Atom, Object, Set

MAX_INLINE: Final = 1 << 62  # larger integers are kept as constants
CALL: Final = 8  # steps for a call of a builtin, so that the clock is looked at also where few of them take long
ATOMS: Final = {NULL: "NULL", TRUE: "TRUE", FALSE: "FALSE"}
CASES: Final = {"lower": "{0}.lower()", "upper": "{0}.upper()"}


class TermWriter(Writer, ABC):
    """Writes terms; how the bodies of comprehensions are written is said by the emitter."""

    @abstractmethod
    def body(self, body: list[Expr]) -> None:
        """Write expressions one after another."""

    def terms(self, terms: list[Term]) -> list[str]:
        """Write terms in an order in which each has what it needs."""
        order, _ = in_turn(terms, self.bound)
        found: dict[int, str] = {}
        for index in order:
            found[index] = self.term(terms[index])
            self.bound |= in_term(terms[index], self.bound).gives
        assert len(found) == len(terms), "an unsafe term was not refused"
        return [found[index] for index in range(len(terms))]

    def term(self, term: Term) -> str:
        """Write what gives a term's value; return a name or a constant for it, which is never None."""
        if isinstance(term, Scalar):
            return self.scalar(term.value)
        if isinstance(term, Var):
            return self.var(term)
        fixed = constant(term)
        if fixed is not None:
            return self.names.constant(fixed)
        if isinstance(term, Ref):
            return self.ref(term)
        if isinstance(term, Array):
            return self.keep(f"({''.join(item + ', ' for item in self.terms(term.items))})")
        if isinstance(term, SetLiteral):
            return self.keep(f"Set(({''.join(item + ', ' for item in self.terms(term.items))}))")
        if isinstance(term, ObjectLiteral):
            flat = self.terms([each for pair in term.pairs for each in pair])
            pairs = ", ".join(f"{key}: {value}" for key, value in zip(flat[::2], flat[1::2], strict=True))
            return self.keep(f"Object({{{pairs}}})")
        if isinstance(term, Call):
            return self.call(term)
        return self.comprehension(term) if isinstance(term, Comprehension) else self.template(term)

    def scalar(self, value: Any) -> str:
        """Return a constant as code."""
        kind = value.__class__
        if kind is Atom:
            return ATOMS[value]
        if kind is str or (kind is int and -MAX_INLINE < value < MAX_INLINE):
            return repr(value) if kind is str else f"({value})"
        return self.names.constant(value)

    def var(self, term: Var) -> str:
        """Return the name of a variable that has a value."""
        if term.name == "input":
            return self.once((self.context, "input"), f"{self.context}.input")
        if term.name == "data":
            return self.once((self.context, "data"), f"{self.context}.extent({self.names.node(self.names.root)})")
        return self.local[term.name]

    def once(self, key: tuple[Any, ...], code: str) -> str:
        """Write what may be undefined, unless it was written before on the way to this point."""
        name = self.known.get(key)
        if name is None:
            name = self.known[key] = self.keep(code)
            self.check(f"{name} is None")
        return name

    def ref(self, ref: Ref) -> str:
        """Write a reference."""
        if isinstance(ref.head, Var) and ref.head.name == "data":
            return self.data(ref)
        value = self.term(ref.head)
        key: tuple[Any, ...] | None = None
        if isinstance(ref.head, Var) and ref.head.name == "input":
            key = (self.context, "input")
        elif isinstance(ref.head, Var):
            key = (self.context, ref.head.name)
        self.bound |= in_term(ref.head, self.bound).gives
        return self.path(value, ref.path, ref.at, key)

    def data(self, ref: Ref) -> str:
        """Write a reference to `data`: rules are called, documents looked up, and where both may be a view is used."""
        node, path = self.names.root, ref.path
        for index, part in enumerate(path):
            if not isinstance(part, Scalar) or node.partial is not None:
                value = self.keep(f"{self.context}.view({self.names.node(node)})")
                self.check(f"{value} is None")
                return self.path(value, path[index:], ref.at, None, step="look")
            child = node.children.get(part.value)
            if child is None:
                value = self.once((self.context, "base"), f"{self.context}.data")
                return self.path(value, path, ref.at, (self.context, "base"), step="look_stored")
            node = child
            if node.group is not None or (node.partial is not None and not node.children):
                if node.function:
                    name = ".".join(map(str, ("data", *node.path)))
                    raise RegoErrors([Fault(ref.at, TYPE_ERROR, f"function {name} used as a value")])
                key = (self.context, "data", *node.path)
                return self.path(self.once(key, self.group(node)), path[index + 1 :], ref.at, key)
        return self.once((self.context, "data", *node.path), f"{self.context}.extent({self.names.node(node)})")

    def group(self, node: Node) -> str:
        """Return the code that evaluates the rules of a node."""
        group = node.group or node.partial
        assert group is not None
        if self.names.patched(node.path):
            return f"{self.context}.rule({self.names.node(node)})"
        return f"{group.name}({self.context})"

    def path(self, value: str, path: list[Term], at: Location, key: tuple[Any, ...] | None, *, step: str = "") -> str:
        """Write the steps of a reference; `step` names the function for those that may meet more than values."""
        for part in path:
            gives = (
                in_pattern(part, self.bound)
                if isinstance(part, Var | Array | ObjectLiteral)
                else in_term(part, self.bound)
            )
            if isinstance(part, Var | Array | ObjectLiteral) and gives.gives:
                value, key = self.iterate(value, part, at), None
                continue
            found = self.term(part)
            self.bound |= gives.gives
            if step:
                found = f"{step}({value}, {found})"
            else:
                found = f"{value}.get({found}) if {value}.__class__ is Object else look({value}, {found})"
            if key is not None and isinstance(part, Scalar):
                key = (*key, part.value, part.value.__class__)
                value = self.once(key, found)
            else:
                key = None
                value = self.keep(found)
                self.check(f"{value} is None")
        return self.keep(f"force({value})") if step == "look" else value

    def iterate(self, value: str, part: Term, at: Location) -> str:
        """Write a step through every key."""
        found = self.temp()
        if is_wildcard(part):
            self.loop(f"for {found} in members({self.context}, {value}):", at)
            return found
        key = self.temp()
        self.loop(f"for {key}, {found} in pairs({self.context}, {value}):", at)
        self.take_apart(part, key)
        return found

    def take_apart(self, pattern: Term, value: str) -> None:
        """Write how a value is compared with a pattern, and how the pattern's variables get theirs."""
        later: list[tuple[Term, str]] = []
        if isinstance(pattern, Array | ObjectLiteral) and value[0] in "('\"":
            value = self.keep(value)  # Python warns of subscripts of a literal
        self.match(pattern, value, later)
        for term, part in later:
            self.check(f"{self.term(term)} != {part}")
            self.bound |= in_term(term, self.bound).gives

    def match(self, pattern: Term, value: str, later: list[tuple[Term, str]]) -> None:
        """Write the part of it that needs no other term; what does is done `later`."""
        if isinstance(pattern, Var) and pattern.name not in self.bound and pattern.name != "input":
            self.local[pattern.name] = value
            self.bound |= {pattern.name}
        elif not in_pattern(pattern, self.bound).gives or not isinstance(pattern, Array | ObjectLiteral):
            later.append((pattern, value))
        elif isinstance(pattern, Array):
            self.check(f"{value}.__class__ is not tuple or len({value}) != {len(pattern.items)}")
            for index, item in enumerate(pattern.items):
                if not is_wildcard(item):
                    self.match(item, self.keep(f"{value}[{index}]"), later)
        else:
            self.check(f"{value}.__class__ is not Object or len({value}) != {len(pattern.pairs)}")
            for key, item in pattern.pairs:
                part = self.keep(f"{value}.get({self.term(key)})")
                self.check(f"{part} is None")
                self.match(item, part, later)

    def callable(self, name: tuple[str, ...]) -> str:
        """Return the code of a function that takes the context first."""
        if name[0] == "data":
            node = self.names.root.find(name[1:])
            assert node is not None
            assert node.group is not None
            return node.group.name
        return self.names.builtin(name, adapted=True)[0]

    def call(self, call: Call) -> str:
        """Write a call."""
        args = self.terms(call.args)
        name = call.name
        if name[0] == "data":
            node = self.names.root.find(name[1:])
            assert node is not None
            assert node.group is not None
            if not self.names.mocked(name):
                value = self.keep(f"{node.group.name}({', '.join([self.context, *args])})")
                self.check(f"{value} is None")
                return value
        elif not self.names.mocked(name):
            return self.builtin(call, args)
        dotted = self.names.constant(name)
        return self.tried(
            f"{self.context}.call({', '.join([dotted, self.callable(name), *args])})", ".".join(name), call.at
        )

    def builtin(self, call: Call, args: list[str]) -> str:
        """Write the call of a builtin that nothing replaces; those that policies use most without a call."""
        code, takes_context, many = self.names.builtin(call.name)
        dotted = ".".join(call.name)
        if takes_context:
            args = [self.context, *args]
        if many:
            rows = self.tried(f"{code}({', '.join(args)})", dotted, call.at)
            value = self.temp()
            self.loop(f"for {value} in {rows}:", call.at)
            return value
        if dotted in {"equal", "neq"}:
            return self.keep(f"TRUE if {args[0]} {'==' if dotted == 'equal' else '!='} {args[1]} else FALSE")
        if dotted in {"plus", "minus"}:
            quick = " and ".join(f"{side}.__class__ is int" for side in args if not is_integer(side)) or "True"
            operator = "+" if dotted == "plus" else "-"
            return self.tried(
                f"{args[0]} {operator} {args[1]} if {quick} else {code}({', '.join(args)})", dotted, call.at
            )
        if dotted in CASES:
            quick = f"{args[0]}.__class__ is str and {args[0]}.isascii()"
            return self.tried(f"{CASES[dotted].format(*args)} if {quick} else {code}({args[0]})", dotted, call.at)
        if dotted == "count":
            return self.tried(
                f"len({args[0]}) if {args[0]}.__class__ in COUNTED else {code}({args[0]})", dotted, call.at
            )
        self.line(f"{self.context}.left -= {CALL}")
        self.line(f"if {self.context}.left < 0: {self.context}.spend(0)")
        return self.tried(f"{code}({', '.join(args)})", dotted, call.at)

    def tried(self, code: str, name: str, at: Location) -> str:
        """Write a call that may fail."""
        value = self.temp()
        self.line("try:")
        self.line(f" {value} = {code}")
        self.line("except BuiltinError as e:")
        self.line(f" {self.context}.failed(e, {name!r}, {self.names.location(at)})")
        self.line(f" {self.fail}")
        self.check(f"{value} is None")
        return value

    def comprehension(self, term: Comprehension) -> str:
        """Write a comprehension."""
        made = self.keep({"array": "[]", "set": "set()", "object": "{}"}[term.kind])
        state = self.save()
        self.loop("for _ in ONCE:", term.at)
        self.body(term.body)
        if term.key is None:
            value = self.term(term.value)
            self.line(f"{made}.{'append' if term.kind == 'array' else 'add'}({value})")
        else:
            key, value = self.terms([term.key, term.value])
            self.line(f"if {made}.setdefault({key}, {value}) != {value}:")
            where = self.names.location(term.at)
            self.line(f" raise {self.context}.conflict('object keys must be unique', {where})")
        self.restore(state)
        return self.keep(f"{ {'array': 'tuple', 'set': 'Set', 'object': 'Object'}[term.kind] }({made})")

    def template(self, term: Template) -> str:
        """Write a string with expressions."""
        pieces: list[str] = []
        values = iter(term.values)
        for part in term.parts:
            if isinstance(part, str):
                pieces.append(repr(part))
                continue
            found = self.keep("None")
            state = self.save()
            self.loop("for _ in ONCE:", term.at)
            self.body(part)
            self.line(f"{found} = {self.term(next(values))}")
            self.line("break")
            self.restore(state, f"{found} is not None")
            pieces.append(f"shown({found})")
        return self.keep(f"''.join(({''.join(piece + ', ' for piece in pieces)}))")


def is_integer(code: str) -> bool:
    """Return whether code is an integer, written out."""
    return code[0] == "("


def is_wildcard(term: Term) -> bool:
    """Return whether a term is a `_`, whose value nobody asks for."""
    return isinstance(term, Var) and term.name.startswith("_$")


def constant(term: Term) -> Any:
    """Return the value of a collection that has no variables; None if there is none."""
    if isinstance(term, Scalar):
        return term.value
    if isinstance(term, Array | SetLiteral):
        items = [constant(item) for item in term.items]
        if any(item is None for item in items):
            return None
        return tuple(items) if isinstance(term, Array) else Set(items)
    if isinstance(term, ObjectLiteral):
        made = {}
        for key, value in term.pairs:
            one, other = constant(key), constant(value)
            if one is None or other is None:
                return None
            made[one] = other
        return Object(made)
    return None
