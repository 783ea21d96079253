"""The protocol of the daemon's socket: one JSON object per line, both ways.

The client's first line attaches it: Hello. The answer is {"attached", "version", "pid"} or {"error"} followed by the
end of the connection.

kind "mcp": from then on the connection carries MCP's own lines. kind "cli": the client sends requests with an id of its
choice, any number at once, and may leave at any time, which cancels what it asked for. To each request there is one
{"id", "result"} or {"id", "error"}; before it there may be {"id", "step"} for each step of a chain. Without an id come
{"note"}, a text for the person, and {"ask", "question"}, which the client answers with {"answer", "word"}, unless
{"withdraw", "word", "by"} comes first: then somebody answered elsewhere. kind "control": the same, about the daemon
itself: `status`, `stop`, `console` and `http`. Only the last two open a host. kind "policy": the same, with `eval` as
its only request. kind "chat": see `chat_protocol`.
"""

import os
from typing import Any, Literal

import msgspec

from anyplug.call.consent import Answer
from anyplug.home.settings import Surface
from anyplug.model.errors import AnyplugError
from anyplug.model.types import Offer

LONGEST_LINE = 64 << 20  # bytes; files in arguments and in results are within it


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Who attaches, from where, and with what."""

    attach: Literal[1]
    kind: Literal["cli", "mcp", "control", "policy", "chat"]
    cwd: str
    environment: dict[str, str] = {}
    plugins: tuple[str, ...] = ()
    discover: bool = True
    asks: bool = False  # whether there is a person to ask
    yes: bool = False  # answers the tier 2 question in advance
    profile: str = ""
    surface: Surface | None = None
    model: str = ""  # of a chat, with the address of its server, if it has one
    base_url: str = ""
    resume: str = ""  # a stored conversation


class _Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    id: int


class CallTool(_Request, frozen=True, kw_only=True, tag="call"):
    """Call a tool; returns a Result."""

    name: str
    arguments: Any = None
    wait: bool = True  # otherwise an asynchronous tool's job is returned at once


class FindTool(_Request, frozen=True, kw_only=True, tag="find"):
    """Look up a name; returns Found. With a slash, wait until extensions may have registered a command."""

    name: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is a slash command of a name, and a tool, with its schema."""

    is_command: bool
    is_tool: bool
    input_schema: dict[str, Any] | None = None


class RunCommand(_Request, frozen=True, kw_only=True, tag="run"):
    """Run a slash command; returns a CommandOutcome."""

    line: str


class RunChain(_Request, frozen=True, kw_only=True, tag="chain"):
    """Run a chain, given as its steps; returns a ChainOutcome."""

    steps: list[Any]


class Look(_Request, frozen=True, kw_only=True, tag="look"):
    """Start a long-running plugin, by its path; returns the status of its processes."""

    path: str


class Conditions(_Request, frozen=True, kw_only=True, tag="conditions"):
    """Wait until all long-running plugins have settled; returns the Condition of each by its path."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A long-running plugin's status and offer, with the reason if it is not running."""

    health: str
    offer: Offer | None = None


class Reload(_Request, frozen=True, kw_only=True, tag="reload"):
    """Read everything again and restart long-running plugins, or the plugin of that name; returns a summary."""

    name: str = ""


class Status(_Request, frozen=True, kw_only=True, tag="status"):
    """Query the daemon's status."""


class OpenConsole(_Request, frozen=True, kw_only=True, tag="console"):
    """Serve the console over HTTP for the folder of the client; returns its address, and a link that works once."""

    port: int | None = None  # None: the usual one, or any that is free


class ServeHttp(_Request, frozen=True, kw_only=True, tag="http"):
    """Serve over HTTP for the folder of the client, as `serve --http` does; returns the address and warnings."""

    address: str
    expose: bool = False
    certificate: str = ""
    key: str = ""
    new_token: bool = False

    @property
    def files(self) -> dict[str, str]:
        """The files that it names, by the option of `serve`."""
        named = {"--tls-cert": self.certificate, "--tls-key": self.key}
        return {option: os.path.abspath(path) for option, path in named.items() if path}


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Where the daemon serves over HTTP now."""

    url: str
    pid: int
    warnings: tuple[str, ...] = ()


class Stop(_Request, frozen=True, kw_only=True, tag="stop"):
    """Stop the daemon; returns its process id."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to a question."""

    answer: int
    word: Answer


Request = (
    CallTool | FindTool | RunCommand | RunChain | Look | Conditions | Reload | Status | Stop | OpenConsole | ServeHttp
)


def read_hello(line: bytes) -> Hello:
    """Read a client's first line; raises BadFrame."""
    hello: Hello = _read(line, _HELLO)
    return hello


def read_request(line: bytes) -> Request | Answered:
    """Read a client's line; raises BadFrame."""
    request: Request | Answered = _read(line, _ANSWERED if line.startswith(b'{"answer"') else _REQUEST)
    return request


def read_event(line: bytes) -> dict[str, Any]:
    """Read a "policy" client's line; raises BadFrame. The event itself is interpreted by policies."""
    request: dict[str, Any] = _read(line, _OBJECT)
    if request.get("do") != "eval" or not isinstance(request.get("id"), int):
        raise BadFrame('a client of this kind can only request "eval", with an id', "")
    return request


def error_shape(error: AnyplugError) -> dict[str, str]:
    """Return an error as it goes over the socket."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


class BadFrame(AnyplugError):
    """A line that does not follow this protocol."""

    code = "usage"


class Overloaded(AnyplugError):
    """A client has too many requests running."""

    code = "overloaded"


def _read(line: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "the client and the daemon have different versions; run `anyplug stop`, then try again"
        raise BadFrame(f"the daemon does not understand this request: {error}", hint) from error


_OBJECT = msgspec.json.Decoder(dict[str, Any])
_HELLO = msgspec.json.Decoder(Hello)
_REQUEST = msgspec.json.Decoder(Request)
_ANSWERED = msgspec.json.Decoder(Answered)


def id_of(line: bytes) -> Any:
    """Find the id in an invalid request, if there is one."""
    try:
        read = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return read.get("id") if isinstance(read, dict) else None
