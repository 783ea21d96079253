"""An OpenTelemetry collector for a test: a real OTLP/HTTP receiver on loopback."""

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Collector:
    """What was received."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, Any]] = []

    @property
    def spans(self) -> list[Any]:
        found = [request for path, request in self.requests if path == "/v1/traces"]
        return [
            span for one in found for group in one.resource_spans for part in group.scope_spans for span in part.spans
        ]

    @property
    def metrics(self) -> dict[str, Any]:
        """The newest of each name."""
        found = [request for path, request in self.requests if path == "/v1/metrics"]
        groups = [part for one in found for group in one.resource_metrics for part in group.scope_metrics]
        return {metric.name: metric for part in groups for metric in part.metrics}

    def of(self, name: str) -> Any:
        """Return the one span of a name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span


def attributes(thing: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in thing.attributes}


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Receive inside the block."""
    known = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = KINDS[self.path]()
            request.ParseFromString(body)
            known.requests.append((self.path, request))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *given: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        known.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield known
        finally:
            server.shutdown()
            thread.join()
