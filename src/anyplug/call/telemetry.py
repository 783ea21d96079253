"""OpenTelemetry: one span for each call, with its phases as children, and metrics. Costs nothing while it is off.

Names follow the semantic conventions for generative AI where they have any. Arguments and results are never sent.
Imports the libraries only when it is on; the usual `OTEL_*` variables apply.
"""

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from anyplug import __version__
from anyplug.call.state import CallState
from anyplug.home.settings import TelemetrySettings
from anyplug.model.errors import ConfigError
from anyplug.model.types import Result
from anyplug.model.untrusted_text import for_people

if TYPE_CHECKING:  # only while it is on
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace import Span

NAME = "anyplug"
PHASES = ("gate", "queue", "spawn", "run")  # in their order; what follows is `record`
EXPORT_S = 3.0  # for one request to the collector
LAST_S = 5.0  # for the last requests, when the host ends
OPERATION, TOOL, CALL_ID = "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id"
DURATION = "gen_ai.client.operation.duration"
EXECUTE = "execute_tool"
BUCKETS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300]
MISSING = "[telemetry] is enabled in settings.toml, but its libraries are not installed"


class Gauges(Protocol):
    """What is read now and then: how busy a host is."""

    def busy(self) -> dict[str, int]:
        """Return numbers by the names of their metrics."""
        ...


class CallTrace:
    """The span of one call."""

    __slots__ = ("_at", "_began", "_passed", "_span", "_telemetry", "context")

    def __init__(self, telemetry: "Telemetry", span: "Span", began: int, context: dict[str, str]) -> None:
        self._telemetry = telemetry
        self._span = span
        self._began = self._at = began
        self._passed = 0  # phases
        self.context = context  # for those whom it calls

    def passed(self, phase: str) -> None:
        """Note that a phase has ended now."""
        if PHASES.index(phase) < self._passed:
            return
        self._passed = PHASES.index(phase) + 1
        self._phase(phase)

    def settled(self) -> None:
        """Note that the outcome is known: the phase in which a call failed ends now."""
        if self._passed < len(PHASES):
            self._phase(PHASES[self._passed])
            self._passed = len(PHASES)

    def end(self, trail: CallState, result: Result) -> None:
        """End it with the outcome of the call."""
        self._phase("record")
        self._telemetry.ended(self._span, trail, result, (self._at - self._began) / 1e9, self._at)

    def _phase(self, name: str) -> None:
        begun, self._at = self._at, time.time_ns()
        self._telemetry.phase(self._span, name, begun, self._at)


class Telemetry:
    """What one host tells a collector."""

    def __init__(self, settings: TelemetrySettings, host: Gauges) -> None:
        """Start to send. Raises ConfigError if the libraries are not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # all of these take 0.3 s
        except ImportError as error:
            raise ConfigError(MISSING, "pip install 'anyplug[otel]'") from error
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # a collector may be away
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", NAME)})
        where = settings.endpoint.rstrip("/")
        spans = OTLPSpanExporter(endpoint=f"{where}/v1/traces" if where else None, timeout=EXPORT_S)
        numbers = OTLPMetricExporter(endpoint=f"{where}/v1/metrics" if where else None, timeout=EXPORT_S)
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        reader = PeriodicExportingMetricReader(numbers, export_interval_millis=settings.interval_s * 1000)
        self._meters = MeterProvider([reader], resource=resource)
        self._tracer = self._traces.get_tracer(NAME, __version__)
        self._measure(host)

    def _measure(self, host: Gauges) -> None:
        meter = self._meters.get_meter(NAME, __version__)
        self._calls = meter.create_counter("anyplug.calls", "{call}", "Calls that ended.")
        self._errors = meter.create_counter("anyplug.call.errors", "{call}", "Calls that ended with an error.")
        self._durations = meter.create_histogram(
            DURATION, "s", "Duration of calls.", explicit_bucket_boundaries_advisory=BUCKETS_S
        )
        for name, about in (
            ("anyplug.calls.running", "Calls that run now."),
            ("anyplug.queue.length", "Calls that wait for their turn."),
            ("anyplug.processes", "Long-running plugins, and interpreters that wait for calls."),
        ):
            meter.create_observable_gauge(name, [_observed(host, name)], description=about)
        for name, about in (
            ("anyplug.warm.hits", "Calls that an interpreter waited for."),
            ("anyplug.warm.misses", "Calls of such plugins that started cold."),
        ):
            meter.create_observable_counter(name, [_observed(host, name)], description=about)

    def begin(self, trail: CallState) -> None:
        """Begin the span of a call."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # imported by now

        began = time.time_ns()
        propagator = TraceContextTextMapPropagator()
        span = self._tracer.start_span(
            f"{EXECUTE} {trail.record.tool}",
            propagator.extract(trail.attachment.trace),
            SpanKind.INTERNAL,
            {OPERATION: EXECUTE, CALL_ID: trail.record.call},
            start_time=began,
        )
        context: dict[str, str] = {}
        propagator.inject(context, _as_parent(span))
        trail.trace = CallTrace(self, span, began, context)

    def phase(self, span: "Span", name: str, begun: int, ended: int) -> None:
        """Add a phase of a call."""
        self._tracer.start_span(name, _as_parent(span), start_time=begun).end(ended)

    def ended(self, span: "Span", trail: CallState, result: Result, seconds: float, at: int) -> None:
        """End the span of a call, and count the call."""
        from opentelemetry.trace import Status, StatusCode  # imported by now

        record, labels = trail.record, {OPERATION: EXECUTE, TOOL: trail.record.tool}
        span.update_name(f"{EXECUTE} {record.tool}")
        of_plugin = {"anyplug.plugin": record.plugin, "anyplug.format": record.format}
        span.set_attributes({**labels, **of_plugin, "gen_ai.tool.type": "extension"})
        span.set_attributes({"anyplug.caller": trail.attachment.kind, "anyplug.verdict": record.verdict or "none"})
        if trail.attachment.agent:
            span.set_attribute("gen_ai.agent.name", for_people(trail.attachment.agent))
        if result.error is not None:
            labels["error.type"] = result.error.code
            span.set_attribute("error.type", result.error.code)
            span.set_status(Status(StatusCode.ERROR, result.error.code))
            self._errors.add(1, labels)
        self._calls.add(1, labels)
        self._durations.record(seconds, labels)
        span.end(at)

    async def close(self) -> None:
        """Send what is left, for a limited time."""
        with anyio.move_on_after(LAST_S, shield=True):
            await anyio.to_thread.run_sync(self._shut_down, abandon_on_cancel=True)

    def _shut_down(self) -> None:
        self._traces.shutdown()
        self._meters.shutdown(int(EXPORT_S * 1000))


def _as_parent(span: "Span") -> Any:
    from opentelemetry.trace import set_span_in_context  # imported by now

    return set_span_in_context(span)


def _observed(host: Gauges, name: str) -> "Callable[[CallbackOptions], Iterable[Observation]]":
    from opentelemetry.metrics import Observation  # imported by now

    return lambda _: [Observation(host.busy()[name])]
