"""The chat's own slash commands: a table, and what each does."""

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from anyplug.frontends.chat.chat_state import count
from anyplug.frontends.chat.completion_list import Suggestion
from anyplug.frontends.chat.shown_text import one_line
from anyplug.frontends.chat.transcript_blocks import ListBlock

if TYPE_CHECKING:
    from anyplug.frontends.chat.chat_face import Face
    from anyplug.frontends.design_tokens import Token

Run = Callable[["Face", str], Awaitable[None]]
MOST_LISTED = 100  # rows of a list in the transcript
KEYS = (
    ("Enter", "send; while a turn runs, the message is queued"),
    ("Shift+Enter, Alt+Enter, Ctrl+J", "new line"),
    ("Tab", "complete; else go to the open question"),
    ("F2", "go to the open question, also from a panel"),
    ("Esc", "close what is open; else cancel the turn; else clear notes"),
    ("Up, Down", "earlier and later messages, from the first and last row"),
    ("Alt+Up", "take back a queued message"),
    ("PgUp, PgDn, Ctrl+Home, Ctrl+End", "scroll; follow the end again"),
    ("Ctrl+F, then n and N", "search; next and previous match"),
    ("Ctrl+O", "unfold or fold all tool calls"),
    ("Ctrl+S", "send the model the text that the latest card offers"),
    ("Ctrl+Y", "copy the last answer"),
    ("Ctrl+G", "write in $EDITOR"),
    ("Ctrl+T", "light, dark, or the terminal's colours"),
    ("Ctrl+C", "copy the selection; else clear the input; twice: quit"),
    ("Ctrl+D", "quit, if the input is empty"),
)


class BuiltIn(NamedTuple):
    """One command."""

    about: str
    run: Run
    takes_more: bool = False


Cells = tuple[tuple[str, "Token"], ...]


def _list(app: "Face", title: str, rows: "Sequence[Cells]", note: str = "") -> None:
    """Show a list from its beginning on."""
    app.transcript.show(app.transcript.add(ListBlock(title, rows, note)))


async def _help(app: "Face", rest: str) -> None:
    rows: list[Cells] = [((key, "text"), (what, "muted")) for key, what in KEYS]
    rows += [(("", "text"), ("", "muted")), (("Commands", "accent"), ("", "muted"))]
    rows += [((f"/{name}", "text"), (command.about, "muted")) for name, command in BUILT_INS.items()]
    for choice in await app.extension_commands():
        if choice.plugin:  # else the conversation's own, which the screen has, too
            about = f"{one_line(choice.description)} ({one_line(choice.plugin)})"
            rows.append(((f"/{one_line(choice.name)}", "text"), (about, "muted")))
    _list(app, "Keys", rows)


async def _tools(app: "Face", rest: str) -> None:
    wanted = rest.casefold()
    tools = [tool for tool in await app.workspace.tools() if wanted in f"{tool.name} {tool.plugin}".casefold()]
    rows: list[Cells] = [
        ((one_line(tool.name, 60), "text"), (one_line(tool.plugin, 40), "muted"), (one_line(tool.description), "muted"))
        for tool in tools[:MOST_LISTED]
    ]
    note = ""
    if len(tools) > MOST_LISTED:
        note = f"… {len(tools) - MOST_LISTED} more; `/tools WORD` lists those with WORD in their name"
    elif not tools:
        note = _NO_TOOLS if not rest else f"No name has “{one_line(rest)}”."
    _list(app, count(len(tools), "tool"), rows, note)


_NO_TOOLS = "Install a plugin: `anyplug install FOLDER-OR-URL`, or try `anyplug demo`."


async def _plugins(app: "Face", rest: str) -> None:
    await app.learn_plugins()
    rows: list[Cells] = []
    for plugin in app.state.rows:
        token: Token = "ok" if plugin.state == "approved" else "ask"
        about = "  ".join(filter(None, (plugin.health, count(plugin.tools, "tool"), one_line(plugin.description))))
        rows.append(((one_line(plugin.name, 60), "text"), (plugin.state, token), (about, "muted")))
    waiting = [plugin.name for plugin in app.state.rows if plugin.state in {"new", "changed"}]
    note = f"`/approve {waiting[0]}` shows what it asks for." if waiting else ""
    _list(app, count(len(rows), "plugin"), rows, note or ("" if rows else _NO_TOOLS))


async def _approve(app: "Face", rest: str) -> None:
    waiting = [plugin.name for plugin in app.state.rows if plugin.state in {"new", "changed"}]
    name = rest or (waiting[0] if len(waiting) == 1 else "")
    if not name or name.startswith("-"):
        which = ", ".join(one_line(one, 60) for one in waiting) or "none"
        app.fault_line(f"no plugin is named; waiting for approval: {which}", "`/approve NAME` shows what it asks for")
        return
    app.run_in_terminal(app.workspace.approval(name))
    await app.learn_plugins()


async def _reload(app: "Face", rest: str) -> None:
    app.note_line("reloading extensions…")
    app.note_line(await app.workspace.reload())
    await app.learn_plugins()


async def _model(app: "Face", rest: str) -> None:
    if rest:
        assert app.conversation is not None
        await app.conversation.use_model(rest)
        return
    rows: list[Cells] = [
        ((one_line(choice.name, 60), "text"), (one_line(choice.description), "muted"))
        for choice in await app.workspace.models()
    ]
    _list(app, f"Model: {app.state.model_name}", rows, "`/model PROVIDER:NAME` changes it.")


async def _new(app: "Face", rest: str) -> None:
    app.open_other("")


async def _sessions(app: "Face", rest: str) -> None:
    stored = list(await app.workspace.conversations())
    if rest:
        found = [choice for number, choice in enumerate(stored, 1) if rest in {str(number), choice.name}]
        if not found:
            app.fault_line(f"there is no conversation “{one_line(rest)}”", "`/sessions` lists them")
            return
        app.open_other(found[0].name)
        return
    rows: list[Cells] = [
        ((str(number).rjust(3), "accent"), (choice.name[:8], "muted"), (one_line(choice.description), "text"))
        for number, choice in enumerate(stored[:MOST_LISTED], 1)
    ]
    note = "`/sessions NUMBER` continues one." if stored else "No others are stored yet."
    _list(app, count(len(stored), "other conversation"), rows, note)


async def _export(app: "Face", rest: str) -> None:
    place = await app.workspace.export(app.state.conversation, os.path.expanduser(rest))
    app.note_line(f"exported to {place}")


async def _policy(app: "Face", rest: str) -> None:
    policies = list(await app.workspace.policies())
    rows: list[Cells] = [
        ((one_line(name, 60), "text"), (one_line(about), "muted")) for name, about in policies[:MOST_LISTED]
    ]
    title = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    _list(app, title, rows, "" if rows else "`anyplug policy init` writes the first one.")


async def _audit(app: "Face", rest: str) -> None:
    records = list(await app.workspace.records())
    rows: list[Cells] = []
    for when, tool, outcome in records:
        token: Token = "ok" if outcome.startswith("done") else "risk"
        rows.append(((when, "muted"), (one_line(tool, 60), "text"), (one_line(outcome), token)))
    _list(app, "Latest calls", rows, "`anyplug audit` shows all of them." if rows else "Nothing was called yet.")


async def _clear(app: "Face", rest: str) -> None:
    app.transcript.clear()
    app.state.notes.clear()
    app.draw()


async def _quit(app: "Face", rest: str) -> None:
    await app.action_leave_chat()


BUILT_INS: dict[str, BuiltIn] = {
    "help": BuiltIn("show keys and commands", _help),
    "tools": BuiltIn("list the tools that the model can call", _tools, takes_more=True),
    "plugins": BuiltIn("list the plugins and their states", _plugins),
    "approve": BuiltIn("review a plugin in this terminal, and approve it", _approve, takes_more=True),
    "reload-ext": BuiltIn("restart extensions and plugins", _reload),
    "model": BuiltIn("show or change the model", _model, takes_more=True),
    "new": BuiltIn("begin another conversation", _new),
    "sessions": BuiltIn("list conversations, or continue one", _sessions, takes_more=True),
    "export": BuiltIn("write this conversation as Markdown", _export, takes_more=True),
    "policy": BuiltIn("list the policies that apply here", _policy),
    "audit": BuiltIn("list the latest calls", _audit),
    "clear": BuiltIn("clear the screen; the conversation stays", _clear),
    "quit": BuiltIn("leave the chat", _quit),
}


def suggestions(typed: str, extension_commands: list[Suggestion]) -> list[Suggestion]:
    """Return the commands that fit what was typed after the slash: those that begin so, then those that have it."""
    wanted = typed.casefold()
    ours = [Suggestion(f"/{name}", command.about, "", command.takes_more) for name, command in BUILT_INS.items()]
    rows = [*ours, *(row for row in extension_commands if row.text[1:].casefold() not in BUILT_INS)]
    begins = [row for row in rows if row.text[1:].casefold().startswith(wanted)]
    return begins + [row for row in rows if row not in begins and wanted in row.text[1:].casefold()]
