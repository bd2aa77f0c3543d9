"""The metrics of an exported watch arrive at a collector of OpenTelemetry."""

import pytest

from tests.integration.test_export import (
    await_that,
    exported,
    free_port,
    pairs,
    verdicts,
    watch_file,
)
from tests.integration.watched_pipeline import Load, make_topics
from tests.unit.watcher.test_otlp import OtlpReceiver

pytestmark = pytest.mark.integration


def test_figures_are_pushed_to_a_collector_to_the_last(broker, tmp_path):
    make_topics(broker.bootstrap, **{"pushed-in": 1, "pushed-out": 1})
    path, port, receiver = watch_file(tmp_path, broker, "pushed"), free_port(), OtlpReceiver()
    load = Load(broker.bootstrap, pairs("pushed"), count=50, per_second=1_000)
    load.start()
    load.join()
    with exported(path, tmp_path, port, "--otlp", receiver.url) as process:
        await_that(process, tmp_path, lambda: verdicts(port).get("missing") == 5)
    receiver.shutdown()
    points = receiver.metrics()["tidegauge_verdicts"].sum.data_points
    counts = {
        point.attributes[-1].value.string_value: point.as_double or point.as_int for point in points
    }
    assert {name: count for name, count in counts.items() if count} == {
        "exact": 45,
        "missing": 5,
        "duplicate": 2,
    }
