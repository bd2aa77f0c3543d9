"""Metrics by OTLP, received by a server that decodes OpenTelemetry's own protocol."""

import gzip
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from services.watcher.otlp import OtlpPush, exporter_to
from tests.unit.runtime.test_metric_names import of_a_watch

pytestmark = pytest.mark.unit


class OtlpReceiver(ThreadingHTTPServer):
    """Keeps the requests that it receives. status: of its answers."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiving)
        self.requests, self.status = [], 200
        self.arrived = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self):
        """The metrics of the newest request by name."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


class Receiving(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert (self.path, self.headers["Content-Type"]) == (
            "/v1/metrics",
            "application/x-protobuf",
        )
        if self.server.status == 200:
            self.server.requests.append(ExportMetricsServiceRequest.FromString(body))
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.server.arrived.set()

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def receiver():
    server = OtlpReceiver()
    yield server
    server.shutdown()


def attributes(point):
    return {each.key: each.value.string_value for each in point.attributes}


def test_a_collector_receives_the_figures_of_the_page(receiver):
    lines = []
    push = OtlpPush(exporter_to(receiver.url), of_a_watch(), lines.append, push_s=0.01)
    assert receiver.arrived.wait(30)
    push.close()
    metrics = receiver.metrics()
    latency = metrics["tidegauge_output_latency"]
    (point,) = latency.histogram.data_points
    assert (latency.unit, point.count, point.sum) == ("s", 12, pytest.approx(160.036))
    assert list(point.explicit_bounds)[:2] == [0.001, 0.002]
    counts = dict(zip([*point.explicit_bounds, None], point.bucket_counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.001: 1,
        0.005: 9,
        None: 2,
    }
    assert not point.HasField("min")
    assert point.start_time_unix_nano < point.time_unix_nano
    verdicts = metrics["tidegauge_verdicts"].sum
    assert verdicts.is_monotonic
    values = defaultdict(float)
    for each in verdicts.data_points:
        values[attributes(each)["verdict"]] += each.as_double or each.as_int
    assert values == {"exact": 3, "wrong": 3, "late": 3, "duplicate": 3, "unexpected": 3}
    (lag,) = metrics["tidegauge_watch_lag"].gauge.data_points
    assert (attributes(lag), lag.as_double) == ({"watch": "orders"}, 1.5)
    assert lines == []


def test_a_collector_that_does_not_take_them_is_told_once(receiver):
    receiver.status = 400
    told = threading.Event()
    lines = []

    def tell(line):
        lines.append(line)
        told.set()

    push = OtlpPush(exporter_to(receiver.url), of_a_watch(), tell, push_s=0.01)
    assert told.wait(60)
    receiver.status = 200
    push.close()
    assert lines == ["The metrics could not be pushed by OTLP; it is tried again."]
    assert "tidegauge_watch_up" in receiver.metrics()
