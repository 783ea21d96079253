"""`/tools/TOOL/call`, `/calls`, `/chains`, `/jobs`: run tools, watch and cancel what runs."""

import time
from typing import Any, Final

import anyio
import msgspec

from anyplug.call.chains import ChainOutcome
from anyplug.call.job_store import Job, JobNotFound
from anyplug.frontends import json_output
from anyplug.frontends.console import api_types as types
from anyplug.frontends.console import record_shapes
from anyplug.frontends.console.api_errors import Busy, Conflict, NothingHere
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.downloads import with_downloads
from anyplug.frontends.console.endpoints import Endpoint
from anyplug.frontends.console.live_project import LiveProject
from anyplug.frontends.console.plugin_shapes import cure_of
from anyplug.model import hints
from anyplug.model.result_shape import result_shape
from anyplug.model.types import Failure, Result

PYTHON: Final = """\
import anyio

from anyplug import Host


async def main() -> None:
    async with Host() as host:
        result = await host.call({tool!r}, {arguments!r})
        print(result.text)


anyio.run(main)
"""
CANCELLED: Final = Failure("cancelled", "the call was cancelled")


class CallBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to call a tool with. `id` names the call in events and for its cancellation."""

    arguments: dict[str, Any] = {}
    id: types.ClientId = ""
    wait: bool = True


class PreviewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool would be called with."""

    arguments: dict[str, Any] = {}


class ChainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The steps of a chain."""

    steps: list[dict[str, Any]]
    id: types.ClientId = ""


class _Running:
    """One call of this API while it runs."""

    def __init__(self, live: LiveProject, name: str) -> None:
        self._live = live
        self._name = name
        self.call = ""
        self.scope = anyio.CancelScope()

    def begun(self, call: str) -> None:
        """Note the host's id of the call."""
        self.call = call
        self._live.scopes[call] = self.scope
        if self._name:
            self._live.names[call] = self._name

    def ended(self) -> None:
        """Forget it."""
        self._live.scopes.pop(self.call, None)
        self._live.names.pop(self.call, None)

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on a report of the tool."""
        if self._live.streams:
            said = {"call": self.call, "id": self._name, "progress": progress, "total": total, "message": message or ""}
            self._live.ring.add("call_progress", said)


async def call_tool(request: ApiRequest) -> dict[str, Any]:
    """Call a tool. Every call ends with a result, also one that fails, unless there are too many. Raises Busy."""
    body, live = request.read(CallBody), request.live
    if body.id and body.id in live.names.values():
        raise Conflict(f"a call with the id '{body.id}' is running", "choose another id")
    running, result, began = _Running(live, body.id), None, time.monotonic()
    try:
        with running.scope:
            result = await request.host.call(
                request.values["tool"],
                body.arguments,
                attachment=request.attachment(),
                wait=body.wait,
                progress=running.progressed,
                begun=running.begun,
            )
    finally:
        running.ended()
    if result is None:
        took = (time.monotonic() - began) * 1000
        result = Result(is_error=True, error=CANCELLED, tool=request.values["tool"], duration_ms=took)
    if result.error is not None and "retry_after_ms" in result.metadata and result.error.code == Busy.code:
        raise Busy(result.error.message, result.error.hint, result.metadata["retry_after_ms"] // 1000)
    return called_shape(request, result, running.call, body.id)


def called_shape(request: ApiRequest, result: Result, call: str, name: str) -> dict[str, Any]:
    """Return a result, with how the call passed the gates and what confined it."""
    host, shape = request.host, result_shape(result)
    record = request.live.ended(call)
    if any(block["type"] == "file" for block in shape["content"]):
        shape["content"] = with_downloads(request, shape["content"])
    return {
        **shape,
        "id": name,
        "call": call,
        "record": host.audit.number_of(call) if request.is_console else None,
        "gates": record_shapes.gates(record) if record is not None else [],
        "receipt": record.held_by if record is not None else None,
        "cure": cure_of(result.error.hint, host.snapshot) if result.error is not None else None,
    }


async def preview(request: ApiRequest) -> dict[str, Any]:
    """Return what a call would do; nothing runs."""
    body = request.read(PreviewBody)
    found = await request.host.preview(request.values["tool"], body.arguments, attachment=request.attachment())
    given = msgspec.json.encode(body.arguments).decode()
    return {
        **msgspec.to_builtins(found),
        "as_command": hints.command("call", found.tool, "--args", given).strip("`"),
        "as_python": PYTHON.format(tool=found.tool, arguments=body.arguments),
    }


async def list_calls(request: ApiRequest) -> dict[str, Any]:
    """Return the calls that run now, and those that wait for an answer."""
    waiting = [
        {
            "call": one.question.id,
            "id": request.live.names.get(one.question.id, ""),
            "tool": one.question.tool,
            "plugin": one.question.plugin,
            "attachment": one.attachment,
            "agent": one.agent,
            "callers": list(one.question.callers),
            "at": one.at,
            "arguments": "",
            "state": "waiting",
        }
        for one in request.host.questions.all
    ]
    return {"items": [*request.live.calls.values(), *waiting], "next": None}


async def cancel_call(request: ApiRequest) -> dict[str, bool]:
    """Cancel a call that was begun through this API."""
    live, name = request.live, request.values["call"]
    call = next((call for call, chosen in live.names.items() if chosen == name), name)
    if (scope := live.scopes.get(call)) is not None:
        scope.cancel()
        return {"cancelled": True}
    if call in live.calls:
        raise Conflict("this call was started elsewhere", "cancel it where it was started")
    raise NothingHere(f"no running call has the id '{name}'", "list the calls that run with `GET /api/v1/calls`")


async def run_chain(request: ApiRequest) -> dict[str, Any]:
    """Call tools one after another."""
    body, live = request.read(ChainBody), request.live
    scope, outcome = anyio.CancelScope(), ChainOutcome(success=False, error=CANCELLED.message)

    def tell(step: int, result: Result) -> None:
        live.ring.add("chain_step", {"id": body.id, "step": step, "result": result_shape(result)})

    key = f"chain {body.id}"
    if body.id:
        live.scopes[key], live.names[key] = scope, body.id
    try:
        with scope:
            outcome = await request.host.run_chain(body.steps, attachment=request.attachment(), on_step=tell)
    finally:
        live.scopes.pop(key, None)
        live.names.pop(key, None)
    return json_output.chain_shape(outcome)


def _jobs(request: ApiRequest) -> list[Job]:
    """Return the jobs of the project's plugins: another project may have a plugin of the same name."""
    return [job for job in request.host.jobs() if request.host.snapshot.has_maker(job.tool, job.plugin)]


async def list_jobs(request: ApiRequest) -> dict[str, Any]:
    """Return background jobs of the project's plugins, those in other hosts of this home included."""
    return request.page([json_output.job_shape(job) for job in _jobs(request)])


async def cancel_job(request: ApiRequest) -> dict[str, bool]:
    """Cancel a job."""
    id = request.values["job"]
    if all(job.id != id for job in _jobs(request)):
        raise JobNotFound(id)
    request.host.cancel_job(id)
    return {"cancelled": True}


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/tools/{tool}/call",
        name="callTool",
        for_tokens=True,
        about="Call a tool; errors of the tool are in the answer",
        runs_tools=True,
        handle=call_tool,
        body=CallBody,
        answer=types.Called,
    ),
    Endpoint(
        method="POST",
        path="/tools/{tool}/dry-run",
        name="previewCall",
        for_tokens=True,
        about="Show what a call would do, without running it",
        handle=preview,
        body=PreviewBody,
        answer=types.DryRun,
    ),
    Endpoint(
        method="GET",
        path="/calls",
        name="listCalls",
        for_tokens=True,
        about="List the calls that run now",
        handle=list_calls,
        answer=types.RunningCalls,
    ),
    Endpoint(
        method="DELETE",
        path="/calls/{call}",
        name="cancelCall",
        for_tokens=True,
        about="Cancel a call by its id",
        handle=cancel_call,
        answer=types.Cancelled,
        status=202,
    ),
    Endpoint(
        method="POST",
        path="/chains",
        name="runChain",
        for_tokens=True,
        about="Call tools one after another",
        runs_tools=True,
        handle=run_chain,
        body=ChainBody,
        answer=types.ChainRun,
    ),
    Endpoint(
        method="GET",
        path="/jobs",
        name="listJobs",
        for_tokens=True,
        about="List jobs",
        handle=list_jobs,
        answer=types.Jobs,
    ),
    Endpoint(
        method="DELETE",
        path="/jobs/{job}",
        name="cancelJob",
        for_tokens=True,
        about="Cancel a job",
        handle=cancel_job,
        answer=types.Cancelled,
    ),
]
