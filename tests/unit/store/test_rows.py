"""Records of the bus are converted to rows of their tables."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import catalogue, codec
from services.store.projection.rows import (
    ConsumedRecord,
    TableRows,
    UnusableError,
    batch_blocks,
    blocks,
    halves,
    project,
    stand_in,
    translate,
)
from services.store.tables import TABLES

pytestmark = pytest.mark.unit

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
LATENCY = TABLES[catalogue.LATENCY]
GENERATOR = TABLES[catalogue.GENERATOR]


def latency_event(**fields):
    return {
        "run_id": "r1",
        "time": NEW_YEAR_MS,
        "producer": "evaluator",
        "pipeline": "p",
        "stage": "join",
        "definition": "latest",
        "phase": "measure",
        "second": NEW_YEAR_MS - 1000,
        "latencies_ms": [3, -1],
        "counts": [10, 2],
    } | fields


def record(event, topic=catalogue.LATENCY, offset=7, partition=0):
    return ConsumedRecord(topic, partition, offset, codec.encode(catalogue.record_of(topic), event))


def as_dicts(table, rows):
    filled = [one if len(one) == rows.count else one * rows.count for one in rows.columns]
    return [dict(zip(table.columns.names, row, strict=True)) for row in zip(*filled, strict=True)]


def test_a_latency_event_becomes_one_row_per_value():
    rows = project(LATENCY, record(latency_event()))
    shared = {
        "run_id": "r1",
        "time": NEW_YEAR_MS,
        "producer": "evaluator",
        "pipeline": "p",
        "stage": "join",
        "definition": "latest",
        "phase": "measure",
        "second": NEW_YEAR_MS - 1000,
        "_topic": "results.latency",
        "_partition": 0,
        "_offset": 7,
    }
    assert as_dicts(LATENCY, rows) == [
        shared | {"latency_ms": 3, "count": 10},
        shared | {"latency_ms": -1, "count": 2},
    ]
    assert rows.month == 202601


def test_a_latency_event_without_values_becomes_no_row():
    assert project(LATENCY, record(latency_event(latencies_ms=[], counts=[]))).count == 0


def test_a_generator_event_stays_one_row_so_that_its_sums_stay_true():
    event = {
        "run_id": "r1",
        "time": NEW_YEAR_MS - 1,
        "producer": "generator",
        "phase": "measure",
        "second": 0,
        "intended": 5,
        "sent": 5,
        "acknowledged": 4,
        "failed": 1,
        "send_delays_us": [100, 200],
        "counts": [3, 2],
        "queue_full_us": 7,
    }
    rows = project(GENERATOR, record(event, catalogue.GENERATOR))
    place = {"_topic": "results.generator", "_partition": 0, "_offset": 7}
    assert as_dicts(GENERATOR, rows) == [event | place]
    assert rows.month == 202512


PAIRS = TABLES[catalogue.PAIRS]


def pairs_event(**fields):
    return {
        "run_id": "r1",
        "time": NEW_YEAR_MS,
        "producer": "evaluator",
        "pipeline": "p",
        "stage": "join",
        "phases": ["measure", "measure"],
        "verdicts": ["exact", "late"],
        "partitions": [0, 1],
        "offsets": [70, 8],
        "appended_ms": [1_005, 1_009],
        "latest_input_ms": [1_000, 1_001],
        "mean_input_ms": [999.5, 1_000.5],
        "scheduled_us": [998_000, 999_500],
    } | fields


def test_an_event_of_pairs_becomes_one_row_per_pair():
    rows = as_dicts(PAIRS, project(PAIRS, record(pairs_event(), catalogue.PAIRS)))
    assert [(r["output_partition"], r["output_offset"], r["verdict"]) for r in rows] == [
        (0, 70, "exact"),
        (1, 8, "late"),
    ]
    assert [(r["appended_ms"], r["latest_input_ms"], r["mean_input_ms"]) for r in rows] == [
        (1_005, 1_000, 999.5),
        (1_009, 1_001, 1_000.5),
    ]


def test_times_of_a_pair_that_are_not_known_are_null():
    known = {"visible_from_ms": [1_030, None], "handed_ms": [None, 1_002]}
    for fields, visible, handed in (
        ({}, [None, None], [None, None]),
        (known, [1_030, None], [None, 1_002]),
    ):
        event = record(pairs_event(**fields), catalogue.PAIRS)
        rows = as_dicts(PAIRS, project(PAIRS, event))
        assert [row["visible_from_ms"] for row in rows] == visible
        assert [row["handed_ms"] for row in rows] == handed
    with pytest.raises(UnusableError, match="scheduled_us, handed_ms must have the same length"):
        project(PAIRS, record(pairs_event(handed_ms=[1_002]), catalogue.PAIRS))


def test_pairs_of_arrays_of_several_lengths_are_unusable():
    with pytest.raises(UnusableError, match="scheduled_us must have the same length"):
        project(PAIRS, record(pairs_event(verdicts=["exact"]), catalogue.PAIRS))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"latencies_ms": [1]}, "latencies_ms and counts must have the same length."),
        ({"counts": [1, 0]}, "counts must be greater than 0."),
        ({"time": -1}, "time -1 is not between the years 1970 and 2100."),
        ({"second": 4_102_444_800_000}, "second 4102444800000 is not between"),
    ],
)
def test_an_event_that_no_row_can_hold_is_unusable_and_says_why(fields, reason):
    with pytest.raises(UnusableError, match=reason):
        project(LATENCY, record(latency_event(**fields)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "marker C3 01 missing|no value|empty"),
        (b"{}", "marker C3 01 missing"),
        (b"\xc3\x01" + bytes(8), "unknown schema fingerprint"),
        (codec.encode("results_latency", latency_event())[:-1], "cannot be decoded|trailing bytes"),
        (codec.encode("results_latency", latency_event()) + b"x", "has trailing bytes"),
    ],
)
def test_bytes_that_are_no_record_are_unusable_and_say_why(value, reason):
    with pytest.raises(UnusableError, match=reason):
        project(LATENCY, ConsumedRecord(catalogue.LATENCY, 0, 0, value))


def test_a_record_of_another_kind_is_unusable():
    latency = codec.encode("results_latency", latency_event())
    with pytest.raises(UnusableError, match="carries results_generator, not results_latency"):
        project(GENERATOR, ConsumedRecord(catalogue.GENERATOR, 0, 0, latency))


def test_a_batch_holds_rows_reasons_and_positions_that_no_row_shows():
    records = [
        record(latency_event(), offset=1),
        ConsumedRecord(catalogue.LATENCY, 0, 2, b"no"),
        record(latency_event(), offset=5),
        record(latency_event(), offset=8, partition=1),
        record(latency_event(latencies_ms=[], counts=[]), offset=9, partition=1),
        ConsumedRecord(catalogue.LATENCY, 2, 0, b"no"),
    ]
    batch = translate(LATENCY, records, "store")
    assert [rows.count for rows in batch.rows] == [2, 2, 2]
    assert [number for number, _reason in batch.unusable] == [1, 5]
    assert batch.hidden_positions == {1: 10, 2: 1}


def test_an_unusable_record_among_dead_letters_becomes_a_row_and_no_dead_letter():
    table = TABLES[catalogue.DEAD_LETTER]
    spoilt = ConsumedRecord(catalogue.DEAD_LETTER, 0, 3, b"\xffno", b"k", NEW_YEAR_MS)
    batch = translate(table, [spoilt], "store")
    assert batch.unusable == []
    assert batch.hidden_positions == {}
    (row,) = as_dicts(table, batch.rows[0])
    assert (row["topic"], row["offset"], row["key"]) == ("dead-letter", 3, b"k")
    assert (row["value"], row["time"], row["producer"]) == (b"\xffno", NEW_YEAR_MS, "store")


BEYOND = 2**31  # beyond Kafka's partition numbers and Arrow's column type


def test_a_record_that_arrow_does_not_take_is_unusable_and_its_neighbours_are_not():
    records = [
        record(latency_event(), offset=1),
        record(latency_event(), offset=2, partition=BEYOND),
        record(latency_event(), offset=3),
        record(latency_event(latencies_ms=[], counts=[]), offset=4),
        record(latency_event(), offset=5, partition=BEYOND),
    ]
    batch, (block,) = batch_blocks(LATENCY, records, "store", 100)
    assert block["_offset"].to_pylist() == [1, 1, 3, 3]
    assert [number for number, _reason in batch.unusable] == [1, 4]
    assert batch.unusable[0][1].startswith(
        "The record cannot be converted to a row: ArrowInvalid: Value 2147483648"
    )
    assert batch.hidden_positions == {0: 5, BEYOND: 6}
    assert batch.dropped == []


def test_a_dead_letter_that_no_row_can_hold_is_dropped_and_goes_round_no_more():
    table = TABLES[catalogue.DEAD_LETTER]
    letters = [ConsumedRecord(catalogue.DEAD_LETTER, number, 3, b"no") for number in (0, BEYOND)]
    batch, (block,) = batch_blocks(table, letters, "store", 100)
    assert block["_partition"].to_pylist() == [0]
    assert (batch.unusable, [number for number, _reason in batch.dropped]) == ([], [1])
    assert batch.hidden_positions == {BEYOND: 4}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_measure_that_is_no_number_is_unusable(value):
    table = TABLES[catalogue.PIPELINE]
    event = {
        "run_id": "r1",
        "time": NEW_YEAR_MS,
        "producer": "p",
        "pipeline": "p",
        "stage": "join",
        "batch_id": 1,
        "input_rows": 1,
        "input_rows_per_second": value,
    }
    with pytest.raises(UnusableError, match="input_rows_per_second is not a finite number"):
        project(table, record(event, catalogue.PIPELINE))


def test_a_block_is_halved_between_records():
    records = [record(latency_event(), offset=offset) for offset in (1, 4, 9)]
    (block,) = blocks(LATENCY, translate(LATENCY, records, "store").rows, 100)
    parts = halves(block)
    assert [part["_offset"].to_pylist() for part in parts] == [[1, 1, 4, 4], [9, 9]]
    assert halves(parts[1]) is None


def test_a_stand_in_has_a_time_even_where_the_broker_gave_none():
    table = TABLES[catalogue.DEAD_LETTER]
    rows = stand_in(
        table, ConsumedRecord(catalogue.DEAD_LETTER, 0, 3, None, None, -1), "why", "store"
    )
    assert rows.month == 197001


def test_every_topic_of_the_bus_and_the_dead_letters_have_a_table():
    assert set(TABLES) == {*catalogue.RESULTS, catalogue.DEAD_LETTER}


months = st.integers(2025 * 12, 2025 * 12 + 2)
sizes = st.integers(0, 4)


@settings(deadline=None)
@given(st.lists(st.tuples(months, sizes), max_size=20), st.integers(1, 6))
def test_blocks_keep_order_whole_records_one_month_and_the_limit(records, max_rows):
    all_rows = [rows_of(number, month, size) for number, (month, size) in enumerate(records)]
    found = list(blocks(LATENCY, all_rows, max_rows))
    offsets = [block["_offset"].to_pylist() for block in found]
    assert [offset for block in offsets for offset in block] == [
        number for number, (_month, size) in enumerate(records) for _row in range(size)
    ]
    for before, after in pairwise(offsets):
        assert before[-1] < after[0]
    for block in found:
        times = block["time"].to_pylist()
        assert len({(time.year, time.month) for time in times}) == 1
        assert block.num_rows <= max_rows or len(set(block["_offset"].to_pylist())) == 1


def rows_of(offset, month_number, size):
    year, month = divmod(month_number, 12)
    time_ms = int(datetime(year, month + 1, 1, tzinfo=UTC).timestamp() * 1000)
    values = list(range(size))
    event = latency_event(time=time_ms, latencies_ms=values, counts=[1] * size)
    rows = project(LATENCY, record(event, offset=offset))
    assert rows == TableRows(rows.columns, size, year * 100 + month + 1)
    return rows
