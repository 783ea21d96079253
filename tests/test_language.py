"""The docs and the code use plain English: no phrase of an old dialect comes back.

Add a phrase to PHRASES, or a docstring opening to OPENINGS, when you find one that readers stumble over.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "anyplug"
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/claims.toml")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]

PHRASES = {  # a regular expression, and what to write instead
    r"anew": "again",
    r"whoever|whomever": "anyone who, or the name of the role: caller, user, plugin",
    r"(?<!there )(?:is|are|was|were) (?-i:none)\b(?! of)": "is invalid, is not one",
    r"another than|others than|other as": "different from, other than",
    r"(?:some|any)thing else than": "something other than",
    r"(?:stays?|stayed|staying) up": "keeps running, is long-running",
    r"(?:host|daemon|extension|server|plugin) (?:that )?(?:is|are) up\b(?! to)": "is running",
    r"says? how it does|how .{1,20} does\b(?=[.;|]|$)": "shows its status",
    r"(?:is|are) no (?:JSON|UTF-8|HTTP)": "is not JSON",
    r"(?<!there )(?:is|are|was) no (?:text|string|object|list|frame|folder|file|number|port|chain|boolean)s?\b": (
        "is not a …"
    ),
    r"of tier [12]": "tier 2",
    r"mend(?:s|ed|ing)?": "fix",
    r"nobody (?:has said|to ask|looks)": "name the missing thing",
    r"takes? (?:it|them) over|never taken over": "is ignored, is replaced",
    r"counts? no more|no more counts?": "is revoked, no longer counts",
    r"(?:it|they|that|file|folder|values?|copy|socket|token) (?:lies|lie|lay) (?:in|at|beside|there|outside)": "is in",
    r"held to|holds? (?:it|them|a plugin|plugins) to": "limited to, enforced",
    r"slip of the pen": "typo",
    r"inside of|outside of(?! valid range)": "inside, outside",  # but for a message of OPA's
    r"is to be (?:had|made|taken)": "is available, must be",
    r"as zot has it|as the format has it": "as in zot, depends on the format",
    r"by (?:whom|which) it": "name the actor",
    r"what waits\b": "waiting calls, open questions: name them",
    r"(?:that|which) (?:is|are) there(?! (?:already|now))\b[.,:;]": "available, existing",
    r"(?:as|runs?|is started) always\b(?! as)": "as usual, always",
    r"(?:hears?|heard) no more": "is disconnected, is no longer notified",
    r"(?:is|are|was|were) taken over\b": "is compromised, is replaced",
    r"any more, too": "either",
    r"some \d[\d,]*(?! of)\b": "about 25",
    r"made again": "recreated",
    r"see to it": "make sure, check",
    r"looks? whether": "checks whether",
    r"tell what came of": "report the result of",
    r"goes? on with one": "continues one",
    r"takes? the admin's": "needs the admin's",
    r"the question that waits": "the open question",
    r"begins? (?:anew|another one)": "starts a new one",
}
OPENINGS = ("Give ", "Gives ", "Say ", "Says ", "Have ", "Hear ")  # of a docstring: write Return, Describe, Show, Make
OF_FUNCTIONS = (*OPENINGS, "Whether ", "Of ")  # write Return whether; begin with the verb
PROPERTIES = {"property", "cached_property"}  # which are described like values
ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})", re.IGNORECASE)


def test_the_docs_use_plain_english() -> None:
    found = [
        f"{page.relative_to(REPOSITORY)}:{line}: {phrase}"
        for page in PAGES
        for line, phrase in _phrases(_prose(page.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_clean_modules_stay_in_plain_english() -> None:
    modules = sorted(SOURCE.rglob("*.py"))
    found = [
        f"{module.relative_to(REPOSITORY)}:{first + line - 1}: {phrase}"
        for module in modules
        for first, text in _sentences(module.read_text(encoding="utf-8"))
        for line, phrase in _phrases(text)
    ]
    found += [
        f"{module.relative_to(REPOSITORY)}:{line}: the docstring begins with {opening!r}"
        for module in modules
        for line, opening in _openings(module.read_text(encoding="utf-8"))
    ]
    assert modules
    assert not found, "\n".join(found)


def test_the_old_dialect_is_recognised() -> None:
    old = "A host that is up starts it anew.\nThe settings are fine.\nParse it; undefined if it is none."
    assert [line for line, _ in _phrases(old)] == [1, 1, 3]
    assert list(_phrases("If there is none, it is up to you. There are none of these.")) == []
    assert list(_openings('def tools():\n    """Give the tools."""\n')) == [(2, "Give ")]
    assert list(_openings('def is_on():\n    """Whether it is on."""\n')) == [(2, "Whether ")]
    assert list(_openings('@property\ndef is_on(self):\n    """Whether it is on."""\n')) == []
    assert list(_sentences('x = "a"  # b\n')) == [(1, "a"), (1, "# b")]


def _phrases(text: str) -> Iterator[tuple[int, str]]:
    """Find the phrases to avoid, each with its line."""
    for line, content in enumerate(text.splitlines(), 1):
        if not ANY_PHRASE.search(content):
            continue
        for phrase, instead in PHRASES.items():
            for match in re.finditer(rf"\b(?:{phrase})", content, re.IGNORECASE):
                yield line, f"{match[0]!r}: write {instead}"


def _prose(text: str) -> str:
    """Blank out code, comments and generated names, but keep the lines."""
    for code in (r"^( *)```.*?^\1```$", r"<!--.*?-->", r"`[^`\n]*`", r"\]\([^)\n]*\)"):
        text = re.sub(code, lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return text


def _sentences(source: str) -> Iterator[tuple[int, str]]:
    """Find all strings, docstrings among them, and comments of a module, each with its first line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _openings(source: str) -> Iterator[tuple[int, str]]:
    """Find the docstrings that begin with a word to avoid."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node) or ""
            for opening in OF_FUNCTIONS if _is_called(node) else OPENINGS:
                if text.startswith(opening):
                    yield node.body[0].lineno, opening


def _is_called(node: ast.AST) -> bool:
    """Return whether a definition is a function that callers call, and not a property."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return names.isdisjoint(PROPERTIES)
