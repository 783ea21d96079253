"""`/metrics` and `/readyz`: for programs that watch a daemon.

Names that plugins chose are escaped as Prometheus' text format wants; there is no other text of theirs in it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from anyplug import __version__
from anyplug.audit.counters import Durations
from anyplug.fleet.overview import FleetView
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.console_app import Answer
from anyplug.frontends.console.endpoints import Endpoint
from anyplug.model.untrusted_text import for_people

TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
MOST_TOOLS: Final = 200  # each is some lines
LONGEST: Final = 200  # characters of a label


async def show_metrics(request: ApiRequest) -> Answer:
    """Return the numbers of this daemon in Prometheus' text format."""
    host, server = request.host, request.server
    states = Counter(entry.state for entry in host.snapshot.entries)
    healths = Counter(place.health for place in host.peers.places)
    paces = host.tally.paces()[:MOST_TOOLS]
    lines = [
        *_metric("anyplug_info", "gauge", "The version that runs.", [({"version": __version__}, 1)]),
        *_metric("anyplug_start_time_seconds", "gauge", "When the daemon began.", [({}, server.started)]),
        *_metric("anyplug_calls_total", "counter", "Calls that ended.", [({}, host.tally.calls)]),
        *_metric("anyplug_call_errors_total", "counter", "Calls that ended with an error.", [({}, host.tally.errors)]),
        *_metric("anyplug_calls_running", "gauge", "Calls that run now.", [({}, len(request.live.calls))]),
        *_metric("anyplug_questions_open", "gauge", "Calls that wait for a person.", [({}, len(host.questions.all))]),
        *_metric("anyplug_event_streams", "gauge", "Open streams of events.", [({}, request.live.streams)]),
        *_metric("anyplug_tools", "gauge", "Tools that can be called.", [({}, len(host.tools))]),
        *_metric(
            "anyplug_plugins", "gauge", "Plugins by state.", [({"state": k}, n) for k, n in sorted(states.items())]
        ),
        *_metric(
            "anyplug_plugin_processes",
            "gauge",
            "Long-running processes by health.",
            [({"health": health}, count) for health, count in sorted(healths.items())],
        ),
        *_of_fleet(host.fleet.view() if host.fleet is not None else None),
        *_of_tools(paces),
    ]
    body = ("\n".join(lines) + "\n").encode(errors="replace")
    headers = ((b"content-type", TYPE), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store"))
    return Answer(body=body, headers=headers)


def _of_fleet(fleet: FleetView | None) -> list[str]:
    if fleet is None:
        return []
    workers = [({"worker": one.name, "state": one.state}, one) for one in fleet.workers]
    return [
        *_metric(
            "anyplug_fleet_running",
            "gauge",
            "Calls that a worker is running, as last reported.",
            [(labels, one.running) for labels, one in workers],
        ),
        *_metric(
            "anyplug_fleet_places",
            "gauge",
            "Calls that a worker can run at once.",
            [(labels, one.places) for labels, one in workers],
        ),
        *_metric(
            "anyplug_fleet_behind",
            "gauge",
            "Whether a worker lacks one of the admin's decisions.",
            [(labels, one.lag) for labels, one in workers],
        ),
    ]


def _of_tools(paces: list[Durations]) -> list[str]:
    return [
        *_metric(
            "anyplug_tool_calls_total",
            "counter",
            "Calls by tool.",
            [({"tool": pace.tool}, pace.calls) for pace in paces],
        ),
        *_metric(
            "anyplug_tool_errors_total",
            "counter",
            "Failed calls by tool.",
            [({"tool": pace.tool}, pace.errors) for pace in paces],
        ),
        *_metric(
            "anyplug_tool_duration_median_seconds",
            "gauge",
            "Median duration of a tool's last calls.",
            [({"tool": pace.tool}, pace.median_ms / 1000) for pace in paces],
        ),
    ]


def _metric(name: str, kind: str, about: str, samples: Iterable[tuple[dict[str, str], float]]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        told = ",".join(f'{key}="{label(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{told}}} {value:.17g}" if told else f"{name} {value:.17g}")
    return lines


def label(text: str) -> str:
    """Return a text as the value of a label."""
    clean = for_people(text, LONGEST)
    return clean.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


METRICS = Endpoint(
    method="GET",
    path="/metrics",
    name="showMetrics",
    for_tokens=True,
    about="Show numbers for Prometheus",
    handle=show_metrics,
    kind="text",
)
ENDPOINTS = [METRICS]
