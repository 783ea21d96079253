"""The first lines of an empty conversation: which model this is, and what to ask it."""

from typing import TYPE_CHECKING

from anyplug.frontends.chat.transcript_blocks import TextBlock

if TYPE_CHECKING:
    from anyplug.frontends.design_tokens import Token


def welcome(model: str, examples: list[str], *, has_plugins: bool, is_chosen: bool) -> TextBlock:
    """Return the lines. `is_chosen`: the person named the model."""
    rows: list[tuple[str, Token]] = []
    if model == "demo":
        rows += [
            ("This is " if is_chosen else "No model key found, so this is ", "text"),
            ("demo", "accent"),
            (", a small offline model that calls your tools.\n", "text"),
            ("/model changes it.\n\n", "muted"),
        ]
    rows.append(("Try one of these: type its number, or anything else.\n", "muted"))
    for number, request in enumerate(examples, 1):
        rows += [(f"  {number}  ", "accent"), (f"{request}\n", "text")]
    if not has_plugins:
        how = "`anyplug install FOLDER-OR-URL`, or `anyplug new NAME` for your own"
        rows.append((f"\nNo plugin is installed yet: {how}.\n", "muted"))
    return TextBlock(rows)
