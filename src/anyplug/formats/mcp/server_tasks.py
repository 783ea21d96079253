"""Call a tool that runs as a task of the server's (protocol version 2025-11-25): start it, look, and get its result.

The SDK has the types of these messages but no client for them, so they go around its checks. Imports the SDK's types.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types

from anyplug.formats.mcp import tool_results
from anyplug.model.types import Call

VERSION = "2025-11-25"
QUICKEST_S, SLOWEST_S = 0.05, 5.0  # between two looks at a task, whatever the server suggests
USUAL_MS = 1_000  # if it suggests nothing
CANCEL_S = 2.0  # to tell the server that nobody wants the result
UNDER_WAY = frozenset({"working", "submitted"})

Send = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def is_needed(tool: dict[str, Any], version: str | None) -> bool:
    """Return whether a tool can only be called as a task."""
    return version == VERSION and tool_results.is_only_a_task(tool)


async def call(send: Send, name: str, call: Call) -> types.CallToolResult:
    """Run a tool as a task. Cancelled, it cancels the task."""
    started = await send("tools/call", {"name": name, "arguments": call.arguments, "task": {}})
    task: types.Task = types.CreateTaskResult.model_validate(started, by_name=False).task
    about = {"taskId": task.task_id}
    try:
        looks = 0
        while task.status in UNDER_WAY:
            await anyio.sleep(min(max((task.poll_interval or USUAL_MS) / 1000, QUICKEST_S), SLOWEST_S))
            task = types.GetTaskResult.model_validate(await send("tasks/get", about), by_name=False)
            looks += 1
            if call.progress is not None and task.status_message:
                await call.progress(looks, None, task.status_message)
        # This waits, too: a server that needs an answer asks for it meanwhile.
        return types.CallToolResult.model_validate(await send("tasks/result", about), by_name=False)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(CANCEL_S, shield=True):
            await send("tasks/cancel", about)
        raise
