"""An MCP server that uses all of the protocol, made with the SDK: `full_server.py`, on stdin and stdout."""

import asyncio

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts import base
from pydantic import BaseModel

server = MCPServer("full", version="1.0", log_level="WARNING")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
counts = {"read": 0}


class Person(BaseModel):
    name: str
    age: int = 30


@server.resource("notes://today", title="Today", description="What to do today.", mime_type="text/markdown")
def today() -> str:
    return "# Milk"


@server.resource("notes://logo", mime_type="application/octet-stream")
def logo() -> bytes:
    return b"\x00\x01"


@server.resource("notes://{day}/item/{number}", description="One item of a day.")
def item(day: str, number: str) -> str:
    return f"{day}: item {number}"


@server.prompt(title="Plan a day", description="Ask for a plan.")
def plan(day: str, mood: str = "calm") -> list[base.Message]:
    return [
        base.UserMessage(f"Plan {day}, {mood}."),
        base.AssistantMessage("Gladly."),
        base.UserMessage(types.ImageContent(type="image", data=PIXEL, mime_type="image/png")),
    ]


@server.prompt()
def greet() -> str:
    return "Hello there."


@server.completion()
async def complete(ref, argument, context):
    if isinstance(ref, types.PromptReference) and ref.name == "plan" and argument.name == "day":
        days = ["Monday", "Tuesday"]
        return types.Completion(values=[day for day in days if day.startswith(argument.value)], has_more=False)
    if isinstance(ref, types.ResourceTemplateReference) and ref.uri == "notes://{day}/item/{number}":
        return types.Completion(values=["1", "2"])
    return None


@server.tool()
async def speak(ctx: Context) -> str:
    """Log, and report progress."""
    await ctx.session.send_log_message(level="warning", data={"said": "careful"}, logger="voice")
    await ctx.report_progress(1, 2, "half")
    return "spoken"


def later() -> str:
    return "Later."


@server.tool()
async def grow(ctx: Context) -> str:
    """Have one resource and one prompt more."""
    server.resource("notes://new", name="new")(lambda: "new")
    server.prompt(name="later")(later)
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_prompt_list_changed()
    return "grown"


@server.tool()
async def who(ctx: Context) -> str:
    """Ask the person who they are."""
    answer = await ctx.elicit("Who are you?", Person)
    return f"{answer.action} {answer.data.name} {answer.data.age}" if answer.action == "accept" else answer.action


@server.tool()
async def visit(ctx: Context) -> str:
    """Ask the person to open a page."""
    answer = await ctx.session.elicit_url("Sign in, please.", "https://example.org/sign-in", "sign-1")
    return answer.action


@server.tool()
async def think(ctx: Context, about: str) -> str:
    """Ask a model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=about))
    answer = await ctx.session.create_message(messages=[message], max_tokens=50, system_prompt="Be brief.")
    return f"{answer.model}: {answer.content.text}"


if __name__ == "__main__":
    asyncio.run(server.run_stdio_async())
