"""`/policies`: what is in force here, and trying it without an agent."""

import os
import re
from typing import Any

import anyio.to_thread
import msgspec

from anyplug.frontends.console import api_types as types
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import Endpoint
from anyplug.home import untrusted_files
from anyplug.model.errors import ConfigError, UsageError
from anyplug.policy import accepted_copies
from anyplug.policy.agent_events import HARNESSES
from anyplug.policy.authoring import event_replay, explanations
from anyplug.policy.authoring.candidate_replays import replay_file, replay_folder
from anyplug.policy.authoring.event_replay import Replayed
from anyplug.policy.authoring.project_policies import ProjectPolicies
from anyplug.policy.event_log import Recordings
from anyplug.rego import RegoErrors

LONGEST_POLICY = 1 << 20  # bytes
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\.rego")


class TryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to decide about."""

    event: dict[str, Any]
    harness: str = ""
    signals: dict[str, Any] | None = None


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy to try: its name and text, or the path of a file or of a whole folder."""

    name: str = "candidate.rego"
    text: str = ""
    path: str = ""


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to replay, and since when."""

    candidate: Candidate
    since: str = "7d"
    harness: str = ""


def _place(request: ApiRequest, harness: str = "", about: str = "") -> ProjectPolicies:
    host = request.host
    if harness and harness not in HARNESSES:
        raise UsageError(f"'{harness}' is not a known agent", f"the agents are {', '.join(HARNESSES)}")
    protects = host.catalog.settings.policy.self_protection
    home = host.catalog.home.path
    return ProjectPolicies(home, host.project, about=about, harness=harness, self_protection=protects)


async def list_policies(request: ApiRequest) -> dict[str, Any]:
    """Return the policies that apply here, with what is wrong with them."""

    def work() -> dict[str, Any]:
        nothing = {"is_on": False, "is_valid": True, "places": [], "policies": [], "problems": [], "harnesses": []}
        try:
            place = _place(request)
        except ConfigError:  # there are none
            return {**nothing, "is_on": request.host.has_policies, "untrusted": ""}
        checked = place.checked()
        own = {source.root for source in place.own.values()}
        return {
            "is_on": request.host.has_policies,
            "is_valid": checked.is_valid,
            "places": [{**one, "is_own": one["place"] in own} for one in checked.places],
            "policies": [{**held.shape, "builtin": held.policy.builtin or ""} for held in checked.held],
            "problems": [msgspec.to_builtins(remark) for remark in checked.remarks],
            "harnesses": sorted({held.harness for held in checked.held}),
            "untrusted": _untrusted(request.host.catalog.home.path, place),
        }

    return await anyio.to_thread.run_sync(work)


def _untrusted(home: str, place: ProjectPolicies) -> str:
    """Return what a person has still to accept of a project's policies; empty if nothing."""
    if not place.is_there:
        return ""
    try:
        reading = accepted_copies.read(place.root, is_own=False)
    except OSError as error:
        return f"{place.root} cannot be read: {error.strerror}"
    record = accepted_copies.record_of(home, place.folder)
    if record is not None and record.trusted and record.digests == reading.digests:
        return ""
    return f"{place.root} differs from what you accepted; `{accepted_copies.TRUST}` shows and accepts it"


async def try_event(request: ApiRequest) -> dict[str, Any]:
    """Decide about an event with the policies in force, and explain the decision."""
    body = request.read(TryBody)

    def work() -> dict[str, Any]:
        return explanations.explain(_place(request, body.harness), body.harness, body.event, body.signals)

    return await anyio.to_thread.run_sync(work)


async def replay(request: ApiRequest) -> dict[str, Any]:
    """Decide about recorded events with a candidate, and list what would change."""
    body = request.read(ReplayBody)
    try:
        since = event_replay.moment(body.since)
    except ValueError as error:
        raise UsageError(f"'{body.since}' is not a duration", "write 30m, 12h, 7d or 2w") from error
    try:
        done, notes = await anyio.to_thread.run_sync(lambda: _replay(request, body, since))
    except RegoErrors as error:
        raise ConfigError(f"the candidate is invalid:\n{error}", "fix the lines named above, then try again") from error
    return {**msgspec.to_builtins(done), "notes": notes}


def _replay(request: ApiRequest, body: ReplayBody, since: float) -> tuple[Replayed, list[str]]:
    log = Recordings(request.host.catalog.home.path, 0)
    given = body.candidate
    place = _place(request, body.harness, given.path)
    if given.path and os.path.isdir(given.path):
        return replay_folder(place, given.path, lambda: log.since(since))
    if given.path:
        if not given.path.endswith(".rego"):
            raise UsageError(f"{given.path} is not a policy", "pass a file that ends with .rego, or a folder")
        try:
            text = untrusted_files.read(given.path, LONGEST_POLICY).decode()
        except (OSError, ValueError) as error:  # not text, or not even a path
            raise UsageError(f"cannot read {given.path}: {error}", "check the path") from error
        return replay_file(place, given.path, text, lambda: log.since(since))
    if not NAME.fullmatch(given.name):
        raise UsageError(f"'{given.name}' is not the name of a policy", "it ends with .rego and has no slashes")
    path = os.path.join(place.root, "policies", place.harness(), given.name)
    return replay_file(place, path, given.text, lambda: log.since(since))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/policies",
        name="listPolicies",
        for_tokens=True,
        about="List the policies that apply here, with what is wrong with them",
        handle=list_policies,
        answer=types.Policies,
    ),
    Endpoint(
        method="POST",
        path="/policies/try",
        name="tryEvent",
        for_tokens=True,
        about="Decide about an event, and explain the decision",
        handle=try_event,
        body=TryBody,
        answer=types.Tried,
    ),
    Endpoint(
        method="POST",
        path="/policies/replay",
        name="replayPolicies",
        about="Decide about recorded events with a candidate",
        handle=replay,
        body=ReplayBody,
        answer=types.ReplayedShape,
    ),
]
