"""The reference of the Python library, from the docstrings and signatures of what `dir(anyplug)` and the adapters show.

Reads source files and imports none of them, so the adapters' packages need not be there.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import anyplug

SOURCE = Path(anyplug.__file__).parent
GROUPS = {
    "Hosts": ("Host", "SyncHost"),
    "Callers and questions": ("Attachment", "Question", "Answer", "Ask", "Elicitation", "Elicited", "Sampling"),
    "Calls and results": ("Result", "Failure", "Block", "Text", "Image", "Audio", "Resource", "File"),
    "Chains and commands": ("Step", "ChainOutcome", "BadChain", "CommandOutcome"),
    "Plugins and tools": ("Entry", "Plugin", "Tool", "Command", "Problem", "Catalog"),
    "What plugins say unasked": (
        "Notice", "Note", "NotesCleared", "Submitted", "SlashSubmitted", "SnapshotChanged", "PanelChanged", "Panel",
    ),
    "Agents": ("Greeting", "Ruling"),
    "Errors and places": ("AnyplugError", "find_home"),
}  # fmt: skip
ADAPTERS = {"openai": "HostTools", "anthropic": "HostTools", "langchain": "HostTools", "pydantic_ai": "HostToolset"}
SHARED = "offered_tools"  # what the adapters' classes inherit

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sections() -> Iterator[str]:
    """Yield the parts of the page; fails if a public name is in no group, or in two."""
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(anyplug._EXPORTS), set(grouped) ^ set(anyplug._EXPORTS)  # noqa: SLF001
    for title, names in GROUPS.items():
        yield f"## {title}"
        for name in names:
            yield from _exported(name)
    yield "## Adapters"
    yield "Each is imported from its own module, and needs the package of its name."
    for module, name in ADAPTERS.items():
        found = _classes(SOURCE / "integrations" / f"{module}.py")[name]
        yield from _class(found, f"anyplug.integrations.{module}.{name}", _inherited(found))


def _inherited(found: ast.ClassDef) -> ast.ClassDef | None:
    shared = _classes(SOURCE / "integrations" / f"{SHARED}.py")["OfferedTools"]
    return shared if any(ast.unparse(base) == shared.name for base in found.bases) else None


def _exported(name: str) -> Iterator[str]:
    path = SOURCE.parent / (anyplug._EXPORTS[name].replace(".", "/") + ".py")  # noqa: SLF001
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from _class(node, name, None)
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            yield f"### {name}"
            yield f"```\n{_signature(node)}\n```"
            yield _text(node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            yield f"### {name}"
            yield f"```\n{ast.unparse(node)}\n```"


def _class(node: ast.ClassDef, title: str, inherited: ast.ClassDef | None) -> Iterator[str]:
    yield f"### {title}"
    body = [*(inherited.body if inherited is not None else ()), *node.body]
    made = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if made:
        yield f"```\n{_signature(made[-1]).replace('__init__', node.name, 1)}\n```"
    yield _text(node)
    if made and (said := _text(made[-1])):
        yield said
    if fields := [one for one in body if isinstance(one, ast.AnnAssign)]:
        yield "```\n" + "\n".join(ast.unparse(one) for one in fields) + "\n```"
    rows = []
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("_"):
            is_property = any(ast.unparse(decorator) == "property" for decorator in one.decorator_list)
            shown = f"{one.name}: {ast.unparse(one.returns)}" if is_property and one.returns else _signature(one)
            rows.append(f"- `{' '.join(shown.split())}`\n\n" + "\n".join(f"  {line}".rstrip() for line in _lines(one)))
    yield from rows


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = ast.arguments(
        posonlyargs=node.args.posonlyargs,
        args=[one for one in node.args.args if one.arg not in {"self", "cls"}],
        vararg=node.args.vararg,
        kwonlyargs=node.args.kwonlyargs,
        kw_defaults=node.args.kw_defaults,
        kwarg=node.args.kwarg,
        defaults=node.args.defaults,
    )
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    begins = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    arguments = ast.unparse(given)
    return f"{begins}{node.name}({arguments}){returned}".replace("'", "")


def _lines(node: Definition) -> list[str]:
    """Return a docstring's lines; a paragraph is one line, as in all pages."""
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs if one).split("\n")


def _text(node: Definition) -> str:
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    shown = []
    for one in paragraphs:
        is_code = one.lstrip().startswith(("with ", "async with ", ">>>"))
        shown.append(f"```\n{one}\n```" if is_code else " ".join(one.split()))
    return "\n\n".join(filter(None, shown))


def _classes(path: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
