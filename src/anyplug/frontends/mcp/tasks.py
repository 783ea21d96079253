"""Asynchronous tools as MCP tasks, for clients of the protocol version that has them (2025-11-25).

    tools/call with `task`   starts a job, and returns the task; only tools that run as jobs can be called so
    tasks/get                its state
    tasks/result             waits for the end, and returns what tools/call would have returned
    tasks/cancel             cancels the job
    tasks/list               the jobs of tools that this client may call

The SDK has the types and no server for them: it knows neither these methods nor a task as the answer to tools/call. So
the methods are registered as additional ones, and a middleware answers the calls and announces the capability. A task
is a job of the host, with the job's id; `builtin.job` shows the same jobs to all other clients.
"""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from anyplug.call.job_store import Job
from anyplug.formats import registry
from anyplug.frontends.mcp.handlers import Handlers, Request
from anyplug.frontends.mcp.result_content import ERROR, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import CallNext, ServerRequestContext
    from mcp.server.lowlevel.server import Server

VERSION = "2025-11-25"
CAPABILITY: Wire = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
POLL_MS = 1_000  # how often a client is told to ask
WAIT_S = 20.0  # one look at a job that has not ended; looks follow each other until the client gives up
PAGE = 100  # tasks per answer
RELATED = "io.modelcontextprotocol/related-task"
STATES: dict[str, types.TaskStatus] = {
    "running": "working",
    "done": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "lost": "failed",
}
LOST = "the host that ran it ended, so its result is lost"


class Tasks:
    """The tasks of one server."""

    def __init__(
        self,
        desk: Handlers,
        server: "Server[Any]",
        request_of: "Callable[[ServerRequestContext[Any, Any], types.CallToolRequestParams], Request]",
    ) -> None:
        self._desk = desk
        self._request_of = request_of
        server.middleware.append(self._intercept)
        server.add_request_handler("tasks/get", types.GetTaskRequestParams, self._get)
        server.add_request_handler("tasks/result", types.GetTaskPayloadRequestParams, self._result)
        server.add_request_handler("tasks/cancel", types.CancelTaskRequestParams, self._cancel)
        server.add_request_handler("tasks/list", types.PaginatedRequestParams, self._list)

    async def _intercept(self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext") -> Any:
        """Announce tasks to clients that have them, and start those that they ask for."""
        if ctx.method == "initialize":
            result = await call_next(ctx)
            if isinstance(result, dict) and result.get("protocolVersion") == VERSION:
                return {**result, "capabilities": {**result.get("capabilities", {}), "tasks": CAPABILITY}}
            return result
        if ctx.method == "tools/call" and ctx.protocol_version == VERSION and "task" in (ctx.params or {}):
            return await self._start(ctx)
        return await call_next(ctx)

    async def _start(self, ctx: "ServerRequestContext[Any, Any]") -> Wire:
        """Call a tool as a task."""
        try:
            params = types.CallToolRequestParams.model_validate(ctx.params, by_name=False)
        except ValueError as error:
            raise MCPError(types.INVALID_PARAMS, "Invalid request parameters") from error
        if params.name not in self._desk.offering.task_tools:
            hint = "call it without `task`"
            why = {"code": "invalid_arguments", "message": "this tool does not run as a task", "hint": hint}
            raise MCPError(types.METHOD_NOT_FOUND, f"'{params.name}' does not run as a task: {hint}", why)
        answer = await self._desk.call(params.name, params.arguments, self._request_of(ctx, params))
        job = (answer.get("structuredContent") or {}).get("job") if not answer.get("isError") else None
        if job is None:
            failure = answer.get("_meta", {}).get(ERROR, {})
            said = [block["text"] for block in answer.get("content", []) if block.get("type") == "text"]
            raise MCPError(types.INTERNAL_ERROR, failure.get("message") or "\n".join(said), failure or None)
        return {"task": _task(self._found(job))}

    async def _get(self, ctx: "ServerRequestContext[Any, Any]", params: types.GetTaskRequestParams) -> Any:
        return _task(self._found(params.task_id))

    async def _result(self, ctx: "ServerRequestContext[Any, Any]", params: types.GetTaskPayloadRequestParams) -> Any:
        """Return the result of a task, when it has ended."""
        while self._found(params.task_id).state == "running":
            await self._ask(ctx, {"id": params.task_id, "wait_s": WAIT_S})
        answer = await self._ask(ctx, {"id": params.task_id})
        answer.pop("resultType", None)
        return {**answer, "_meta": {**answer.get("_meta", {}), RELATED: {"taskId": params.task_id}}}

    async def _cancel(self, ctx: "ServerRequestContext[Any, Any]", params: types.CancelTaskRequestParams) -> Any:
        job = self._found(params.task_id)
        if job.state != "running":
            raise MCPError(types.INVALID_PARAMS, f"the task has already ended: {STATES[job.state]}")
        await self._ask(ctx, {"id": params.task_id, "cancel": True, "wait_s": WAIT_S})
        return _task(self._found(params.task_id))

    async def _list(self, ctx: "ServerRequestContext[Any, Any]", params: types.PaginatedRequestParams) -> Any:
        jobs = [job for job in self._desk.host.jobs() if (job.tool, job.plugin) in self._tools()]
        start = 0
        if params.cursor is not None:
            names = [job.id for job in jobs]
            if params.cursor not in names:
                raise MCPError(types.INVALID_PARAMS, "this cursor is no longer valid: list again from the beginning")
            start = names.index(params.cursor) + 1
        page = jobs[start : start + PAGE]
        more: Wire = {"nextCursor": page[-1].id} if start + PAGE < len(jobs) else {}
        return {"tasks": [_task(job) for job in page], **more}

    async def _ask(self, ctx: "ServerRequestContext[Any, Any]", arguments: Wire) -> Wire:
        """Ask for a job by the tool that all clients have, so that every access is admitted and recorded."""
        name = self._desk.offering.snapshot.model_names[registry.JOB]
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        return await self._desk.call(name, arguments, self._request_of(ctx, params), is_plain=True)

    def _found(self, name: str) -> Job:
        """Find a task that this client may know of."""
        for job in self._desk.host.jobs():
            if job.id == name and (job.tool, job.plugin) in self._tools():
                return job
        raise MCPError(types.INVALID_PARAMS, "there is no such task; tasks/list lists all tasks")

    def _tools(self) -> frozenset[tuple[str, str]]:
        """Return the tools that the client sees, each with the lineage of its plugin."""
        seen = self._desk.view.tools(self._desk.host.snapshot)
        return frozenset((tool.name, entry.plugin.lineage) for tool, entry in seen)


def _task(job: Job) -> Wire:
    """Return a job as a task."""
    ended = job.ended if job.ended is not None else time.time()
    message = f"{job.tool}: {LOST if job.state == 'lost' else job.progress or job.state}"
    return {
        "taskId": job.id,
        "status": STATES[job.state],
        "statusMessage": message,
        "createdAt": _moment(job.started),
        "lastUpdatedAt": _moment(ended),
        "ttl": None,
        "pollInterval": POLL_MS,
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
