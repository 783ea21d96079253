"""rich's Markdown with our looks: headings at the left, code on a raised ground, HTML and addresses in view.

Heavy to import; `markdown_rows` does so in a thread.
"""

from typing import ClassVar

from markdown_it import MarkdownIt
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.token import Token as CodeToken
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.table import Table

from anyplug.frontends.design_tokens import Token


class _Title(Heading):
    """A heading at the left, with its level as Markdown writes it for the first two."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _CodeTheme(SyntaxTheme):
    """Colours of code from the token table."""

    def __init__(self, colours: dict[Token, str]) -> None:
        ground = colours["raised"]
        self._ground = Style.parse(f"on {ground}")
        self._styles = {
            CodeToken: Style.parse(f"{colours['text']} on {ground}"),
            Comment: Style.parse(f"italic {colours['muted']} on {ground}"),
            Keyword: Style.parse(f"{colours['ask']} on {ground}"),
            Name.Function: Style.parse(f"{colours['accent']} on {ground}"),
            Name.Class: Style.parse(f"{colours['accent']} on {ground}"),
            Name.Builtin: Style.parse(f"{colours['accent']} on {ground}"),
            Name.Tag: Style.parse(f"{colours['accent']} on {ground}"),
            Number: Style.parse(f"{colours['warn']} on {ground}"),
            Operator: Style.parse(f"{colours['muted']} on {ground}"),
            String: Style.parse(f"{colours['ok']} on {ground}"),
        }

    def get_style_for_token(self, token_type: object) -> Style:
        while token_type not in self._styles:
            token_type = token_type.parent  # type: ignore[attr-defined]  # pygments' tokens are tuples with a parent
        return self._styles[token_type]

    def get_background_style(self) -> Style:
        return self._ground


class _Code(CodeBlock):
    """Code on a raised ground."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 1))


class _Grid(TableElement):
    """A table with thin lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            style="markdown.table.border",
            header_style="markdown.table.header",
            show_edge=False,
        )
        if self.header is not None and self.header.row is not None:
            for column in self.header.row.cells:
                table.add_column(column.content, justify=column.justify)
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*[element.content for element in row.cells])
        yield table


class Prose(Markdown):
    """One block of an answer."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Title,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Grid,
    }
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table").disable("image")

    def __init__(self, text: str, colours: dict[Token, str]) -> None:
        """Parse a block; HTML in it is text."""
        self.markup = text
        self.parsed = self.parser.parse(text)
        self.code_theme = _CodeTheme(colours)  # type: ignore[assignment]  # rich passes it on to Syntax, which takes both
        self.justify = None
        self.style = colours["text"]
        self.hyperlinks = False
        self.inline_code_lexer = None
        self.inline_code_theme = self.code_theme
