"""Names that mean the same in every body of a module: rules of its package, imports, and functions."""

from collections.abc import Callable
from typing import Any

from anyplug.rego.compiling.scopes import Scope
from anyplug.rego.parse.tree import ROOTS, Module, Ref, Scalar, Term, Var
from anyplug.rego.values.rego_errors import COMPILE_ERROR, Fault


class Globals:
    """What one module, or one query, knows by name."""

    def __init__(
        self,
        module: Module | None,
        rules: frozenset[str],
        arity: Callable[[tuple[str, ...]], int | None],
        faults: list[Fault],
    ) -> None:
        """Take the names of the package's rules, and a function that returns how many arguments a function takes."""
        self.package = ("data", *module.package) if module else ()
        self.rules = rules
        self.arity = arity
        self.imports: dict[str, tuple[Any, ...]] = {}
        for each in module.imports if module else []:
            if each.path[0] in ROOTS and (len(each.path) > 1 or each.alias):
                alias = each.alias or each.path[-1]
                if alias in self.imports:
                    shadowed = ".".join(self.imports[alias])
                    faults.append(Fault(each.at, COMPILE_ERROR, f"import must not shadow import of {shadowed}"))
                if alias in ROOTS:
                    message = f"variables must not shadow {alias} (use a different name for the import)"
                    faults.append(Fault(each.at, COMPILE_ERROR, message))
                self.imports[alias] = each.path

    def knows(self, name: str) -> bool:
        """Return whether a name is a rule or an import."""
        return name in self.rules or name in self.imports

    def reference(self, var: Var) -> Term:
        """Return a name that is known as a reference to `data` or `input`."""
        path = (*self.package, var.name) if var.name in self.rules else self.imports[var.name]
        head = Var(var.at, path[0])
        return Ref(var.at, head, [Scalar(var.at, part) for part in path[1:]]) if len(path) > 1 else head

    def full_name(self, name: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of a rule or import, or the name itself."""
        if name[0] in ROOTS:
            return name
        if name[0] in self.rules:
            path = (*self.package, *name)
            if len(name) == 1 or self.arity(path) is not None or self.arity(name) is None:
                return path
        if name[0] in self.imports:
            return (*self.imports[name[0]], *name[1:])
        return name

    def function(self, term: Term, scope: Scope | None = None) -> tuple[str, ...]:
        """Return the name of the function that a term is; empty if it is a value, or a variable of the scope."""
        head = term.head if isinstance(term, Ref) else term
        if not isinstance(head, Var) or (scope is not None and scope.has(head.name)):
            return ()
        rest = term.path if isinstance(term, Ref) else []
        parts = [part.value for part in rest if isinstance(part, Scalar) and isinstance(part.value, str)]
        name = self.full_name((head.name, *parts))
        return name if len(parts) == len(rest) and self.arity(name) is not None else ()
