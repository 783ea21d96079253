"""A fleet as a member knows it: for those who look at it."""

import time

import msgspec

from anyplug.fleet import approved_tools
from anyplug.fleet.directory import Directory
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import Offered


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, for those who look at the fleet."""

    name: str
    state: str  # up, draining
    running: int
    places: int
    version: str
    labels: dict[str, str]
    plugins: list[str]  # that can run there
    problems: dict[str, str]  # of the others, why not
    uptime_s: float
    trust: int
    lag: int  # decisions of the admin that it does not know yet; 0 or 1: whether it is behind
    key: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is offered or approved."""

    name: str
    format: str
    version: str
    state: str  # approved, new, revoked
    digest: str
    tools: list[str]
    workers: list[str]
    granted: list[str]
    ignored: dict[str, list[str]] = {}  # by worker: tools that the admin did not approve as it describes them


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet, as it is now."""

    url: str
    workers: list[Place]
    plugins: list[Shown]


def view_of(url: str, trust: Trust, directory: Directory) -> FleetView:
    """Return a fleet as a member knows it."""
    newest = trust.serial
    workers = []
    shown: dict[str, Shown] = {}
    for seen in sorted(directory.workers.values(), key=lambda one: one.said.name):
        said, offered = seen.said, directory.offered_by(seen)
        workers.append(
            Place(
                name=said.name,
                state="draining" if said.is_draining else "up",
                running=said.running,
                places=said.places,
                version=said.version,
                labels=said.labels,
                plugins=sorted(one.name for one in offered if not one.problem),
                problems={one.name: one.problem for one in offered if one.problem},
                uptime_s=time.time() - said.started,
                trust=said.trust,
                lag=int(said.trust < newest),
                key=said.key,
            )
        )
        for one in directory.described_by(seen):
            known = shown.setdefault(one.offered.approval_key, _shown(trust, one.offered, directory))
            known.workers.append(said.name)
            if one.ignored:
                known.ignored[said.name] = sorted({*known.ignored.get(said.name, ()), *one.ignored})
    for key, approval in trust.approvals.items():
        if not approval.is_revoked and key not in shown:
            shown[key] = Shown(
                name=approval.name,
                format=approval.format,
                version="",
                state="approved",
                digest=approval.digest,
                tools=[],
                workers=[],
                granted=list(approval.granted),
            )
    return FleetView(url=url, workers=workers, plugins=sorted(shown.values(), key=lambda one: one.name))


def _shown(trust: Trust, offered: Offered, directory: Directory) -> Shown:
    decision = trust.approvals.get(offered.approval_key)
    state = "new" if decision is None else "revoked" if decision.is_revoked else "approved"
    tools = [tool.name for tool in offered.tools]
    if decision is not None and state == "approved":
        offered = approved_tools.approved(decision, directory.tools(offered.approval_key).values())
        tools = [tool.name for tool in offered.tools]
    return Shown(
        name=offered.name,
        format=offered.format,
        version=offered.version,
        state=state,
        digest=offered.digest,
        tools=tools,
        workers=[],
        granted=list(decision.granted) if decision is not None and state == "approved" else [],
        ignored={},
    )
