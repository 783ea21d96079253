"""Bodies of rules into Python source.

A body becomes straight code: an expression that does not hold leaves by the way that stands for failure at that point
(`return` or `continue`), one that has several answers opens a loop, and what follows stands inside it. Variables are
Python's own local variables, and whether they have a value is known here and not looked up later. None is undefined.
"""

from typing import Final

from anyplug.rego.compiling.safety import in_expr, in_term, unification
from anyplug.rego.compiling.write_terms import TermWriter, constant, is_integer, is_wildcard
from anyplug.rego.parse.tree import (  # fmt: skip
    ROOTS,
    Array,
    Call,
    Comprehension,
    Every,
    Expr,
    Holds,
    Logic,
    Not,
    ObjectLiteral,
    Scalar,
    SetLiteral,
    SomeIn,
    Template,
    Term,
    Unify,
    Var,
    With,
)
from anyplug.rego.values.rego_errors import Location
from anyplug.rego.values.values import FALSE, Set

COMPARISONS: Final = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
TESTS: Final = {"contains": "{1} in {0}", "startswith": "{0}.startswith({1})", "endswith": "{0}.endswith({1})"}


class Emitter(TermWriter):
    """Writes the body of one Python function."""

    def exists(self, body: list[Expr], at: Location, flag: str | None = None) -> str:
        """Write code that sets a flag if a body has an answer."""
        if flag is None:
            flag = self.keep("False")
        state = self.save()
        self.loop("for _ in ONCE:", at)
        self.body(body)
        self.line(f"{flag} = True")
        self.line("break")
        self.restore(state, flag)
        return flag

    def body(self, body: list[Expr]) -> None:
        """Write expressions one after another."""
        for expr in body:
            self.expr(expr)

    def expr(self, expr: Expr) -> None:
        """Write one expression, under its `with`s."""
        context = self.context
        if expr.withs:
            self.context = self.withs(expr.withs)
        gives = in_expr(expr, self.bound).gives
        if isinstance(expr, Holds):
            self.holds(expr.term)
        elif isinstance(expr, Unify):
            self.unify(expr)
        elif isinstance(expr, SomeIn):
            self.some(expr)
        elif isinstance(expr, Every):
            self.every(expr)
        elif isinstance(expr, Not):
            if not self.negated(expr):
                self.check(self.exists(expr.body, expr.at))
        elif isinstance(expr, Logic):
            self.logic(expr)
        self.bound |= gives
        self.context = context

    def negated(self, expr: Not) -> bool:
        """Write the negation of a test of defined variables and constants; return whether that was possible."""
        inner = expr.body[0] if len(expr.body) == 1 else None
        if not isinstance(inner, Holds) or inner.withs or not isinstance(inner.term, Call):
            return False
        call = inner.term
        plain = all(isinstance(arg, Scalar) or (isinstance(arg, Var) and arg.name in self.bound) for arg in call.args)
        condition = self.condition(call) if plain and not self.names.mocked(call.name) else None
        if condition is None:
            return False
        self.check(condition)
        return True

    def withs(self, withs: list[With]) -> str:
        """Write the context in which an expression is evaluated."""
        values: list[str] = []
        mocks: list[str] = []
        for each in withs:
            target = self.names.root.find(each.path[1:]) if each.path[0] == "data" else None
            is_function = each.path[0] not in ROOTS or (target is not None and target.function)
            name = self.names.constant(each.path)
            if each.function:
                mocks.append(f"({name}, {self.callable(each.function)}, 1)")
            else:
                value = self.term(each.value)
                self.bound |= in_term(each.value, self.bound).gives
                if is_function:
                    mocks.append(f"({name}, {value}, 0)")
                else:
                    values.append(f"({name}, {value})")
        return self.keep(
            f"{self.context}.under(({''.join(v + ', ' for v in values)}), ({''.join(m + ', ' for m in mocks)}))"
        )

    def holds(self, term: Term) -> None:
        """Write a term that must be defined and not false."""
        if isinstance(term, Call) and not self.names.mocked(term.name) and self.test(term):
            return
        value = self.term(term)
        if isinstance(term, Scalar):
            if term.value is FALSE:
                self.line(f"if True: {self.fail}")  # what follows is never reached, but must be Python
        elif not isinstance(term, Array | SetLiteral | ObjectLiteral | Comprehension | Template):
            self.check(f"{value} is FALSE")

    def test(self, call: Call) -> bool:
        """Write a call whose answer is only tested; return whether that was possible."""
        condition = self.condition(call)
        if condition is None:
            return False
        self.check(f"not ({condition})")
        return True

    def condition(self, call: Call) -> str | None:
        """Return a call whose answer is only tested as a condition of Python's, None if it is no such call."""
        name = call.name[0] if len(call.name) == 1 else ""
        if name in {"equal", "neq"}:
            left, right = self.terms(call.args)
            return f"{left} {'==' if name == 'equal' else '!='} {right}"
        if name in COMPARISONS:
            left, right = self.terms(call.args)
            quick = " and ".join(f"{side}.__class__ is int" for side in (left, right) if not is_integer(side))
            return f"{left} {COMPARISONS[name]} {right} if {quick or 'True'} else {name}({left}, {right})"
        if name in TESTS:
            left, right = self.terms(call.args)
            quick = " and ".join(f"{side}.__class__ is str" for side in (left, right) if side[0] not in "'\"")
            code, where = self.names.builtin(call.name)[0], self.names.location(call.at)
            slow = f"holds({self.context}, {code}, {name!r}, {where}, {left}, {right})"
            return f"{TESTS[name].format(left, right)} if {quick or 'True'} else {slow}"
        if call.name == ("internal", "member_2"):
            left, right = self.terms(call.args)
            if constant(call.args[1]).__class__ in {tuple, Set}:
                return f"{left} in {right}"
            return f"{left} in {right} if {right}.__class__ in SEQUENCES else member({left}, {right}) is TRUE"
        return None

    def unify(self, expr: Unify) -> None:
        """Write a unification, step by step."""
        for pattern, term in unification(expr.left, expr.right, self.bound)[0]:
            value = self.term(term)
            self.bound |= in_term(term, self.bound).gives
            self.take_apart(pattern, value)

    def some(self, expr: SomeIn) -> None:
        """Write `some ... in`."""
        value = self.temp()
        fixed = constant(expr.domain)
        if expr.key is None and isinstance(fixed, tuple | Set):
            items = self.names.constant(tuple(fixed.ordered()) if isinstance(fixed, Set) else fixed)
            self.line(f"{self.context}.left -= {len(fixed)}")
            self.line(f"if {self.context}.left < 0: {self.context}.spend(0)")
            self.loop(f"for {value} in {items}:", expr.at)
            self.take_apart(expr.value, value)
            return
        domain = self.term(expr.domain)
        self.bound |= in_term(expr.domain, self.bound).gives
        if expr.key is None or is_wildcard(expr.key):
            self.loop(f"for {value} in members({self.context}, {domain}):", expr.at)
        else:
            key = self.temp()
            self.loop(f"for {key}, {value} in pairs({self.context}, {domain}):", expr.at)
            self.take_apart(expr.key, key)
        self.take_apart(expr.value, value)

    def every(self, expr: Every) -> None:
        """Write `every`: look for a member that the body does not hold for."""
        domain = self.term(expr.domain)
        self.bound |= in_term(expr.domain, self.bound).gives
        self.check(f"{domain}.__class__ not in COLLECTIONS")
        missed = self.keep("False")
        state = self.save()
        key, value = self.temp(), self.temp()
        self.loop(f"for {key}, {value} in pairs({self.context}, {domain}):", expr.at)
        for var, name in ((expr.key, key), (expr.value, value)):
            if var is not None:
                self.local[var.name] = name
                self.bound |= {var.name}
        flag = self.exists(expr.body, expr.at)
        self.line(f"if not {flag}:")
        self.line(f" {missed} = True")
        self.line(" break")
        self.restore(state)
        self.check(missed)

    def logic(self, expr: Logic) -> None:
        """Write `and` or `or`: nothing is evaluated that is not needed."""
        if expr.operator == "and":
            for operand in expr.operands:
                self.check(f"not {self.exists(operand, expr.at)}")
            return
        flag = self.keep("False")
        state = self.save()
        for operand in expr.operands:
            self.exists(operand, expr.at, flag)
            self.line(f"if not {flag}:")
            self.depth += 1
        self.line("pass")
        self.restore(state)
        self.check(f"not {flag}")
