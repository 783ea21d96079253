"""METADATA comments: YAML in comments above packages and rules."""

from typing import Any, Final

from anyplug.rego import yaml
from anyplug.rego.parse.lexer import Comment, Source
from anyplug.rego.parse.tree import Annotation

MARK: Final = "METADATA"
SCOPES: Final = frozenset({"rule", "document", "package", "subpackages"})
FIELDS: Final = frozenset(
    [
        "scope",
        "title",
        "description",
        "organizations",
        "authors",
        "related_resources",
        "custom",
        "schemas",
        "entrypoint",
        "compile",
        "labels",
    ]
)


def read(source: Source, comments: list[Comment]) -> list[Annotation]:
    """Find the blocks and read them. Raises RegoErrors."""
    found: list[Annotation] = []
    lines = [(source.at(comment.start), comment) for comment in comments]
    index = 0
    while index < len(lines):
        at, comment = lines[index]
        index += 1
        if comment.text[1:].strip() != MARK:
            continue
        block: list[str] = []
        row = at.row
        while index < len(lines) and lines[index][0].row == row + 1 and lines[index][0].col == at.col:
            block.append(lines[index][1].text[1:])
            row += 1
            index += 1
        try:
            content = yaml.load("\n".join(block), unique=True)
        except yaml.YamlError as error:
            first = index - len(block)
            wrong = lines[min(first + max(error.row, 1), index) - 1][1]
            raise source.fault(wrong.start, f"yaml: {error.message}") from None
        if not block or content is None:
            raise source.fault(comment.start, "expected METADATA block, found whitespace")
        if not isinstance(content, dict):
            raise source.fault(comment.start, "METADATA must be a mapping")
        scope = content.pop("scope", None)
        if scope is not None and scope not in SCOPES:
            raise source.fault(comment.start, f"invalid METADATA scope {scope!r}")
        found.append(Annotation(at, scope, _clean(source, comment, content), row + 1))
    return found


def _clean(source: Source, comment: Comment, content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as `rego.metadata` shows them."""
    made = {key: value for key, value in content.items() if key in FIELDS and value not in (None, "", [], {}, False)}
    if "authors" in made:
        made["authors"] = [_author(source, comment, author) for author in _list(source, comment, made["authors"])]
    if "related_resources" in made:
        made["related_resources"] = [
            {"ref": entry} if isinstance(entry, str) else entry
            for entry in _list(source, comment, made["related_resources"])
        ]
    return made


def _list(source: Source, comment: Comment, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise source.fault(comment.start, "METADATA expected a list")
    return value


def _author(source: Source, comment: Comment, author: Any) -> dict[str, str]:
    """Read `name <mail>` or a mapping."""
    if isinstance(author, dict):
        return author
    if not isinstance(author, str) or not author.strip():
        raise source.fault(comment.start, "METADATA author must be a text or a mapping")
    words = author.split()
    if len(words) > 1 and words[-1].startswith("<") and words[-1].endswith(">"):
        return {"name": " ".join(words[:-1]), "email": words[-1][1:-1]}
    if words[0].startswith("<") and words[0].endswith(">"):
        return {"email": words[0][1:-1]}
    return {"name": author.strip()}
