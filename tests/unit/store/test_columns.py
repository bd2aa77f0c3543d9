"""Records that are decoded as columns give the same rows as those decoded one by one."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import catalogue, codec
from services.store.projection.rows import (
    YEAR_2100_MS,
    ConsumedRecord,
    batch_blocks,
    blocks,
    column_blocks,
    translate,
)
from services.store.tables import TABLES
from tests.unit.store.test_rows import NEW_YEAR_MS, latency_event, record

pytestmark = pytest.mark.unit

LATENCY = TABLES[catalogue.LATENCY]
MONTH_END_MS = NEW_YEAR_MS + 31 * 86_400_000
DEAD_LETTER = {
    "run_id": "",
    "time": NEW_YEAR_MS,
    "producer": "store",
    "topic": "t",
    "partition": 0,
    "offset": 1,
    "reason": "r",
    "key": None,
    "value": b"v",
}


def plain(found):
    """Blocks without dictionaries, so that equal values are equal."""
    return [
        pa.Table.from_arrays(
            [
                column.cast(column.type.value_type).combine_chunks()
                if pa.types.is_dictionary(column.type)
                else column.combine_chunks()
                for column in block.columns
            ],
            names=block.column_names,
        )
        for block in found
    ]


def one_by_one(table, records, max_rows):
    return list(blocks(table, translate(table, records, "store").rows, max_rows))


numbers = st.integers(-(2**63), 2**63 - 1)
histograms = st.lists(st.tuples(numbers, st.integers(1, 2**63 - 1)), min_size=1, max_size=5)
times = st.sampled_from([NEW_YEAR_MS, MONTH_END_MS - 1, MONTH_END_MS, YEAR_2100_MS - 1, 0])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(
    st.lists(st.tuples(histograms, times, times, texts, st.integers(0, 2)), min_size=1, max_size=6),
    st.integers(1, 9),
)
@settings(max_examples=200, deadline=None)
def test_latencies_are_the_same_rows_in_the_same_blocks(events, max_rows):
    records = [
        record(
            latency_event(
                time=time,
                second=second,
                stage=stage,
                latencies_ms=[value for value, _ in histogram],
                counts=[count for _, count in histogram],
            ),
            offset=offset,
            partition=partition,
        )
        for offset, (histogram, time, second, stage, partition) in enumerate(events)
    ]
    found = column_blocks(LATENCY, records, max_rows)
    assert found is not None
    expected = plain(one_by_one(LATENCY, records, max_rows))
    assert [block.schema for block in plain(found)] == [block.schema for block in expected]
    assert plain(found) == expected


@pytest.mark.parametrize(
    "unusual",
    [
        latency_event(latencies_ms=[], counts=[]),
        latency_event(latencies_ms=[1]),
        latency_event(counts=[1, 0]),
        latency_event(time=YEAR_2100_MS),
        latency_event(second=-1),
    ],
)
def test_what_is_unusual_is_left_to_the_translation_of_single_records(unusual):
    records = [record(latency_event()), record(unusual, offset=8)]
    assert column_blocks(LATENCY, records, 100) is None
    batch, found = batch_blocks(LATENCY, records, "store", 100)
    assert [block.num_rows for block in found] == [2]
    assert len(batch.rows) == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"garbage",
        codec.encode("results_latency", latency_event()) + b"x",
        codec.encode("dead_letter", DEAD_LETTER),
    ],
)
def test_what_is_no_record_is_left_to_the_translation_of_single_records(value):
    good = record(latency_event())
    records = [good, ConsumedRecord(catalogue.LATENCY, 0, 8, value)]
    assert column_blocks(LATENCY, records, 100) is None
    batch, _found = batch_blocks(LATENCY, records, "store", 100)
    assert [number for number, _reason in batch.unusable] == [1]


def test_other_tables_are_left_to_the_translation_of_single_records():
    one = ConsumedRecord(catalogue.DEAD_LETTER, 0, 1, codec.encode("dead_letter", DEAD_LETTER))
    assert column_blocks(TABLES[catalogue.DEAD_LETTER], [one], 100) is None
