"""`chat`: the agent in the terminal. Only what the first frame needs is imported here."""

from __future__ import annotations  # so that names used only in annotations are not imported

import os
import sys
from importlib.util import find_spec

TYPE_CHECKING = False  # as in the package itself
if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyplug.frontends.cli.cli_run import Session
    from anyplug.frontends.cli.parsing import Command, Parser

OPTIONS = {"--model": "model", "--base-url": "base_url", "--resume": "resume", "--theme": "theme"}
LIBRARIES = ("textual", "pydantic_ai")
THEMES = ("dark", "light", "ansi-dark", "ansi-light")
SIZE = ("COLUMNS", "LINES")  # if they are exported, the screen would never follow the terminal's size
LIGHT_GROUNDS = frozenset({"7", "15"})  # the last number of COLORFGBG in terminals with a light ground


def _chat(parser: Parser) -> Command:
    parser.add_argument(
        "--model", default="", metavar="MODEL", help="PROVIDER:NAME, or demo; else [chat] in the settings"
    )
    parser.add_argument("--base-url", default="", metavar="URL", help="use an OpenAI-compatible server, such as Ollama")
    parser.add_argument(
        "--resume", default="", metavar="ID", help="continue a stored conversation; `last` is the latest"
    )
    parser.add_argument(
        "--theme", default="", choices=("", *THEMES), metavar="THEME", help=f"{', '.join(THEMES)}; Ctrl+T changes it"
    )
    parser.epilog = (
        "Without a provider's key, the model is demo, which needs neither a key nor a network.\n"
        "F1 lists keys and commands. The terminal's own colours: --theme ansi-dark or ansi-light."
    )
    return chat


COMMANDS = {"chat": _chat}


def quickly(words: list[str]) -> int | None:
    """Run `chat` from a simple command line; return None if it needs the parser, or cannot run."""
    options = _read(words)
    if options is None or not _is_installed() or not _has_terminal():
        return None
    return _run(**options)


def _read(words: list[str]) -> dict[str, str] | None:
    command, *rest = words
    names, values = rest[::2], rest[1::2]
    if command != "chat" or len(names) != len(values) or not OPTIONS.keys() >= set(names):
        return None
    options = {OPTIONS[name]: value for name, value in zip(names, values, strict=True)}
    is_plain = not any(value.startswith("-") for value in values) and options.get("theme", "") in ("", *THEMES)
    return options if is_plain else None


def chat(session: Session) -> int:
    """Run the chat until the person leaves it."""
    from anyplug.model.errors import AnyplugError, UsageError  # the quick way does without

    class NoChat(AnyplugError):
        """The chat's libraries are not installed."""

        code = "unavailable"

    options = session.options
    if not _is_installed():
        raise NoChat("the chat is not installed", "`pip install 'anyplug[chat]'` installs it")
    if not _has_terminal():
        raise UsageError("the chat needs a terminal", 'in a script, ask one question: `anyplug ask "what can you do"`')
    session.leave_signals()  # the screen handles them, and puts the terminal right
    return _run(
        model=options.model,
        base_url=options.base_url,
        resume=options.resume,
        theme=options.theme,
        home=options.home,
        plugins=[os.path.abspath(os.path.expanduser(path)) for path in options.plugin],
        roots=[] if options.no_discover else None,
    )


def _is_installed() -> bool:
    return all(find_spec(library) is not None for library in LIBRARIES)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def _run(
    *,
    model: str = "",
    base_url: str = "",
    resume: str = "",
    theme: str = "",
    home: str | None = None,
    plugins: Sequence[str] = (),
    roots: Sequence[str] | None = None,
) -> int:
    for name in SIZE:
        os.environ.pop(name, None)
    from anyplug.frontends.chat.chat_app import ChatApp  # imports Textual, which takes most of the first frame
    from anyplug.frontends.chat.host_workspace import HostWorkspace

    workspace = HostWorkspace(plugins, roots=roots, home=home, base_url=base_url)
    app = ChatApp(workspace, model=model, resume=resume, theme=theme or _usual_theme())
    code = app.run()
    return app.return_code or code or 0


def _usual_theme() -> str:
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in LIGHT_GROUNDS else "dark"
