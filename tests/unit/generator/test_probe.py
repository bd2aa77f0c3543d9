"""Amount of probe traffic, and when its windows close."""

from collections import Counter

import pytest

from schemas.records import first_probe_set, probe_time_ms
from services.definitions.domains import load_domain
from services.generator.runs import ProbeTraffic
from tests.unit.generator.made import a_plan

pytestmark = pytest.mark.unit

NOW_MS = 1_700_000_000_750
GEM_PACKS = load_domain("gem_packs")


class FakeProducer:
    """Counts records by key; rejects those of one key."""

    def __init__(self, refused=b""):
        self.keys = Counter()
        self._refused = refused

    def produce(self, topic, value, key, on_delivery):
        self.keys[key] += 1
        on_delivery("too large" if key == self._refused else None, None)

    def poll(self, timeout_s):
        pass


def sets_of(records, most, monkeypatch):
    """Number of sets of `records` records that are sent per second."""
    plan, producer = a_plan(1, domain=GEM_PACKS), FakeProducer()
    (one, _) = plan.records.probe_set(0, NOW_MS)
    monkeypatch.setattr(plan.records, "probe_set", lambda number, now_ms: [one] * records)
    ProbeTraffic(plan, producer, most, first=0).send()
    return producer.keys.total() // records


@pytest.mark.parametrize(("records", "sets"), [(2, 60), (6, 60), (12, 30), (600, 1)])
def test_fewer_sets_are_sent_when_each_has_more_records(monkeypatch, records, sets):
    assert sets_of(records, 60, monkeypatch) == sets


def test_each_set_has_the_next_number_and_the_first_failure_is_kept():
    producer = FakeProducer(refused=b"probe-3")
    probes = ProbeTraffic(a_plan(1, domain=GEM_PACKS), producer, 2, first=0)
    probes.send()
    assert (producer.keys, probes.failure) == ({b"probe-0": 2, b"probe-1": 2}, "")
    probes.send()
    assert (len(producer.keys), probes.failure) == (4, "too large")


def test_each_set_is_later_than_the_one_before_by_the_longest_window():
    times_ms = [probe_time_ms(GEM_PACKS.spec, number, NOW_MS) for number in range(3)]
    # 212,500,000 windows of 8 s have passed; the first set is 100,000 of them ago.
    assert times_ms == [1_699_200_000_000, 1_699_200_008_000, 1_699_200_016_000]


def test_windows_of_a_day_begin_at_half_of_all_days_since_1970():
    days = GEM_PACKS.spec.resolved({"revenue_s": 86_400, "revenue_slide_s": 86_400})
    assert probe_time_ms(days, 0, NOW_MS) == 86_400_000 * (19_675 - 9_837)


def test_sets_beyond_the_last_step_have_the_time_of_now():
    assert probe_time_ms(GEM_PACKS.spec, 200_000, NOW_MS) == 1_700_000_000_000


@pytest.mark.parametrize("domain", ["gem_packs", "flights"])
def test_kept_pipelines_get_sets_of_now_where_event_time_closes_all_windows(domain):
    spec = load_domain(domain).spec
    first = first_probe_set(spec, warm=True)
    longest_ms = 1000 * max(stage.window.size_s for stage in spec.stages if stage.window)
    assert NOW_MS - longest_ms < probe_time_ms(spec, first, NOW_MS) <= NOW_MS
    producer = FakeProducer()
    ProbeTraffic(a_plan(1, domain=GEM_PACKS), producer, 1, first).send()
    assert set(producer.keys) == {b"probe-%d" % first}


def test_new_pipelines_and_windows_that_must_be_filled_get_sets_of_the_past():
    traffic = load_domain("traffic").spec
    assert first_probe_set(traffic, warm=True) == first_probe_set(GEM_PACKS.spec, warm=False) == 0
