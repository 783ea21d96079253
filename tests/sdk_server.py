"""A server made with the SDK's own class: `sdk_server.py stdio`, or `http PORT`, `json PORT`, `sse PORT`."""

import base64
import sys

from mcp.server.mcpserver import Context, Image, MCPServer

server = MCPServer("sdk", version="1.0", log_level="WARNING")


@server.tool(title="Add two")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("out of luck")


@server.tool()
def picture() -> Image:
    """Give an image."""
    return Image(data=base64.b64decode("iVBORw0KGgo="), format="png")


@server.tool()
def flood(size: int) -> str:
    """Give a long text."""
    return "x" * size


@server.tool()
async def header(name: str, ctx: Context) -> str:
    """Say what a header of the request was."""
    return ctx.request_context.request.headers.get(name, "")


@server.tool()
async def grow(ctx: Context) -> str:
    """Have one tool more."""
    server.add_tool(lambda: "new", name="grown", description="Came later.")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def leave() -> str:
    """End the server in the middle of a call."""
    import os

    os._exit(7)


if __name__ == "__main__":
    kind, *port = sys.argv[1:]
    if kind == "stdio":
        server.run("stdio")
    elif kind == "sse":
        server.run("sse", port=int(port[0]))
    else:
        server.run("streamable-http", port=int(port[0]), json_response=kind == "json")
