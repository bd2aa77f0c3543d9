"""Counts that cannot be repeated do not prevent the others from being published."""

from itertools import islice

import pytest

from schemas import catalogue, codec
from services.runtime.counting import CountReconciler, NotRepeatableError

pytestmark = pytest.mark.unit

WHERE = {"pipeline": "p", "stage": "s", "definition": "latest", "phase": "measure"}


def latency(second, **counts):
    latencies = [int(name[1:]) for name in counts]
    return WHERE | {
        "second": second,
        "latencies_ms": latencies,
        "counts": list(counts.values()),
    }


def test_what_can_be_published_is_published_before_the_error():
    owed = CountReconciler()
    owed.deduct(catalogue.LATENCY, latency(1_000, _5=2))
    owed.deduct(catalogue.LATENCY, latency(2_000, _5=2, _6=1))
    owed.count(catalogue.LATENCY, latency(2_000, _5=1, _6=4))
    owed.count(catalogue.LATENCY, latency(3_000, _7=1))
    events = owed.events()
    found = [fields for _, fields in islice(events, 2)]
    assert found == [latency(2_000, _6=3), latency(3_000, _7=1)]
    with pytest.raises(NotRepeatableError, match="less than was published"):
        next(events)


MOST_BYTES = 1_000_000  # of a record, as the client's default
LONG_MS = 86_400_000


def test_counts_of_any_number_of_latencies_fit_into_events():
    owed = CountReconciler()
    latencies = range(LONG_MS, LONG_MS + 130_000)
    many = WHERE | {"second": 1_000, "latencies_ms": latencies, "counts": [1 << 40] * 130_000}
    owed.count(catalogue.LATENCY, many)
    found = [fields for _, fields in owed.events()]
    head = {"run_id": "r" * 80, "producer": "evaluator", "time": 1_800_000_000_000}
    sizes = [len(codec.encode("results_latency", head | fields)) for fields in found]
    assert len(sizes) == 3
    assert max(sizes) < MOST_BYTES
    assert [one for fields in found for one in fields["latencies_ms"]] == list(latencies)
