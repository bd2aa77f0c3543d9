"""Deliberate faults: which records, and how they are changed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas import codec, fault_rules
from schemas.content import DUPLICATE, IMPOSSIBLE, LATE, NONE, UNDECODABLE, Faults
from tests.unit.generator import made
from tests.unit.generator.made import START_MS, TRAFFIC, a_load, a_plan, messages_of

pytestmark = pytest.mark.unit

SOME = Faults(late=0.1, late_ms=300, duplicate=0.2, undecodable=0.05, impossible=0.15)
MANY = np.arange(200_000)
PINNED_KINDS = [3, 0, 4, 1, 0, 1, 2, 0, 2, 0, 0, 2, 2, 2, 0, 0, 0, 4, 0, 2, 0, 0, 0, 1]
PINNED_DELAYS_US = [82611, 702, 575101, 500261]


def test_the_rule_gives_the_same_kinds_for_ever():
    """Pinned: judging a run of last year must find the same records."""
    found = fault_rules.kinds(SOME, seed=42, sequences=np.arange(24))
    assert found.tolist() == PINNED_KINDS
    late = fault_rules.delays_us(SOME, seed=42, sequences=np.arange(4))
    assert late.tolist() == PINNED_DELAYS_US


def test_every_kind_has_its_share():
    shares = np.bincount(fault_rules.kinds(SOME, 7, MANY)) / len(MANY)
    assert shares == pytest.approx([0.5, 0.1, 0.2, 0.05, 0.15], abs=0.005)


def test_another_seed_affects_other_records():
    one, other = fault_rules.kinds(SOME, 1, MANY), fault_rules.kinds(SOME, 2, MANY)
    assert 0.3 < (one == other).mean() < 0.4  # by chance: the sum of the squared shares


def test_a_kind_depends_on_nothing_but_seed_and_sequence():
    assert (
        fault_rules.kinds(SOME, 5, MANY[77:99]) == fault_rules.kinds(SOME, 5, MANY)[77:99]
    ).all()


@pytest.mark.parametrize(
    ("distribution", "mean_us", "max_us"),
    [("fixed", 300_000, 300_000), ("uniform", 150_000, 300_000), ("exponential", 3e5, 3e6)],
)
def test_delays_follow_their_distribution(distribution, mean_us, max_us):
    rule = Faults(late=0.1, late_ms=300, late_distribution=distribution)
    delays_us = fault_rules.delays_us(rule, 3, MANY)
    assert delays_us.mean() == pytest.approx(mean_us, rel=0.02)
    assert 0 <= delays_us.min() <= delays_us.max() <= max_us


def test_shares_above_one_are_refused():
    with pytest.raises(ValidationError, match="must not exceed 1"):
        Faults(late=0.6, duplicate=0.6)


@pytest.mark.parametrize("wire_format", ["avro", "json"])
def test_each_kind_does_to_a_record_what_it_says(wire_format):
    content = {"format": wire_format}
    clean = messages_of(a_load(200, 4, content=content))
    faulty = messages_of(a_load(200, 4, content=content, faults=SOME, seed=42))
    kinds = fault_rules.kinds(SOME, 42, np.arange(800))
    delays_us = fault_rules.delays_us(SOME, 42, np.arange(800))

    def decoded(topic, value):
        return made.decoded(TRAFFIC.spec, topic, value, wire_format)[1]

    expected = Counter()
    for topic, key, value, due_us in clean:
        record = decoded(topic, value)
        kind = kinds[record["sequence"]]
        if kind == LATE:
            due_us = min(due_us + int(delays_us[record["sequence"]]), 3_999_999)  # noqa: PLW2901
            record["scheduled_at"] = START_MS * 1000 + due_us
        elif kind == IMPOSSIBLE:
            name = "flow_vehicles_per_hour" if "flow" in topic else "speed_km_per_hour"
            record[name] = -1
        told = value[: len(value) // 2] if kind == UNDECODABLE else tuple(record.items())
        expected[topic, key, told, due_us] += 2 if kind == DUPLICATE else 1

    found = Counter()
    for topic, key, value, due_us in faulty:
        try:
            told = tuple(decoded(topic, value).items())
        except codec.DecodeError:
            told = value
        found[topic, key, told, due_us] += 1
    assert found == expected
    assert set(kinds.tolist()) == {NONE, LATE, DUPLICATE, UNDECODABLE, IMPOSSIBLE}


@given(st.integers(1, 3_000), st.integers(1, 2_000), st.integers(1, 500))
@settings(max_examples=20, deadline=None)
def test_late_records_come_in_the_order_of_their_times_and_all_of_them(rate, late_ms, limit):
    rule = Faults(late=0.5, late_ms=late_ms)
    load = a_load(rate, 2, faults=rule)
    last_us, records = {}, 0
    for prepared in load.prepared(limit):
        for batch in prepared.batches:
            assert (np.diff(batch.due_us) >= 0).all()
            assert batch.due_us[0] >= last_us.get(batch.topic, 0)
            assert batch.due_us[-1] < prepared.slice.end_us
            last_us[batch.topic] = int(batch.due_us[-1])
            records += len(batch)
    assert records == 2 * rate


def test_a_shortened_load_sends_its_late_records_before_its_end():
    load = a_load(100, 8, faults=Faults(late=0.5, late_ms=20_000))
    records = 0
    for prepared in load.prepared():
        if prepared.slice.end_us == 3_000_000:
            load.shorten(4)
        for batch in prepared.batches:
            assert batch.due_us[-1] < 4_000_000
            records += len(batch)
    assert records == 4 * 100


def test_more_late_records_than_can_be_held_are_refused():
    with pytest.raises(ValueError, match="would hold back 10,000,000 records"):
        a_plan(1_000_000, faults={"late": 1, "late_ms": 10_000})
