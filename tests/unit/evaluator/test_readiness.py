"""When an evaluator reports ready, and when it reports the reason why not."""

import numpy as np
import pytest

from schemas.events import ClockOffsetMeasured, Ready
from services.evaluator.pairing.evaluation import RecordBatch
from services.evaluator.run.reader import PATIENCE_MS, PartitionShard, Readiness, reached
from tests.unit.evaluator.records import START_MS, a_plan
from tests.unit.evaluator.test_probes import probe

pytestmark = pytest.mark.unit


class Said:
    """Lifecycle events in place of a bus."""

    def __init__(self):
        self.events = []

    def publish(self, event):
        assert event.run_id == "run"
        self.events.append((event.name, event.detail))


class Looking:
    """A readiness with a clock controlled by the test."""

    def __init__(self):
        self.now_ms, self.said = START_MS, Said()
        self._readiness = Readiness(a_plan(), PartitionShard(1, 2), self.said, lambda: self.now_ms)

    def see(self, *times):
        one = probe(*times)
        appended_ms = np.array([one.appended_ms], np.int64)
        self._readiness.add(RecordBatch("traffic.flow", appended_ms, [one.encoded]))
        return self._readiness.tell()

    def tell(self):
        return self._readiness.tell()


def test_it_waits_for_a_first_probe_then_tells_the_offset_and_ready():
    looking = Looking()
    assert looking.tell() is None
    assert looking.see(10, 9) == ""
    ready = {"service": "evaluator", "instance_index": 1, "instance_count": 2}
    assert looking.said.events == [
        (ClockOffsetMeasured.name, {"offset_ms": 1.5, "records": 1}),
        (Ready.name, ready),
    ]


def test_it_is_patient_with_a_long_way_until_a_short_one_is_seen():
    looking = Looking()
    assert looking.see(1_000, 100) is None
    looking.now_ms += PATIENCE_MS - 1
    assert looking.see(40_000, 39_998) == ""


def test_it_is_patient_for_half_a_minute_only():
    looking = Looking()
    assert looking.see(1_000, 100) is None
    looking.now_ms += PATIENCE_MS
    assert "appended 900 ms after" in looking.tell()
    assert [event for event, _ in looking.said.events] == [ClockOffsetMeasured.name]


def test_a_clock_that_is_ahead_is_told_at_once():
    assert "ahead of the broker's" in Looking().see(10, 17)


def test_a_share_is_every_nth_partition():
    offsets = {"a": (1, 2, 3), "b": (4,)}
    assert PartitionShard().of(offsets) == {("a", 0): 1, ("a", 1): 2, ("a", 2): 3, ("b", 0): 4}
    assert PartitionShard(0, 2).of(offsets) == {("a", 0): 1, ("a", 2): 3, ("b", 0): 4}
    assert PartitionShard(1, 2).of(offsets) == {("a", 1): 2}
    assert PartitionShard(3, 4).of(offsets) == {}


def test_all_is_read_when_no_partition_is_behind():
    ends = {("a", 0): 5, ("a", 1): 0}
    assert reached({("a", 0): 5, ("a", 1): 2, ("b", 0): 0}, ends)
    assert not reached({("a", 0): 4, ("a", 1): 2}, ends)
