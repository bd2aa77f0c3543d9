"""Sums per minute, existing rows of a table, retention, and the comparison after a rebuild."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue
from services.store.engines.schema import (
    TABLE_SETTINGS,
    fresh,
    latency_minutes,
    retention_statements,
    setting_statements,
)
from services.store.projection.rebuild import Digest, drop_statements, verdict
from services.store.projection.rows import blocks, translate
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from tests.unit.store.test_rows import NEW_YEAR_MS, latency_event, record

pytestmark = pytest.mark.unit
LATENCY = TABLES[catalogue.LATENCY]


def block_of(*events, first_offset=0):
    records = [record(event, offset=first_offset + n) for n, event in enumerate(events)]
    (block,) = blocks(LATENCY, translate(LATENCY, records, "tests").rows, 1000)
    return block


def sums(block):
    columns = ("minute", "latency_ms", "count", "_offset")
    rows = [tuple(row[name] for name in columns) for row in latency_minutes(block).to_pylist()]
    return sorted(rows)


def test_counts_of_one_minute_add_up_and_keep_the_greatest_offset():
    first = latency_event(second=NEW_YEAR_MS + 1000, latencies_ms=[3, 5], counts=[10, 1])
    second = latency_event(second=NEW_YEAR_MS + 59_000, latencies_ms=[3], counts=[4])
    third = latency_event(second=NEW_YEAR_MS + 60_000, latencies_ms=[3], counts=[7])
    assert sums(block_of(first, second, third, first_offset=20)) == [
        (datetime(2026, 1, 1, 0, 0, tzinfo=UTC), 3, 14, 21),
        (datetime(2026, 1, 1, 0, 0, tzinfo=UTC), 5, 1, 20),
        (datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 3, 7, 22),
    ]


def test_series_are_kept_apart():
    block = block_of(*(latency_event(phase=p, latencies_ms=[1], counts=[2]) for p in ("a", "b")))
    assert latency_minutes(block).num_rows == 2


@given(st.lists(st.dictionaries(st.integers(-9, 9), st.integers(1, 99), min_size=1), min_size=1))
def test_no_output_is_lost_or_doubled_by_summing(histograms):
    events = [
        latency_event(
            second=NEW_YEAR_MS + (7000 * number),
            latencies_ms=list(histogram),
            counts=list(histogram.values()),
        )
        for number, histogram in enumerate(histograms)
    ]
    summed = latency_minutes(block_of(*events))
    assert sum(summed["count"].to_pylist()) == sum(sum(h.values()) for h in histograms)


def offsets(table: pa.Table) -> list[int]:
    return sorted(set(table["_offset"].to_pylist()))


def test_only_records_that_a_table_lacks_are_written_to_it():
    block = block_of(*(latency_event() for _n in range(4)), first_offset=5)
    assert offsets(fresh(block, {})) == [5, 6, 7, 8]
    assert offsets(fresh(block, {(catalogue.LATENCY, 0): 7})) == [7, 8]
    assert offsets(fresh(block, {(catalogue.LATENCY, 1): 7, ("other", 0): 9})) == [5, 6, 7, 8]
    assert fresh(block, {(catalogue.LATENCY, 0): 99}).num_rows == 0


DEFINED = dict.fromkeys(
    (
        "results_latency",
        "results_pipeline",
        "results_resources",
        "dead_letter",
        "results_pairs",
        "results_slices",
        "results_metrics",
    ),
    "MergeTree ORDER BY x SETTINGS y = 1",
)


def test_tables_are_told_once_how_to_merge():
    every = ", ".join(TABLE_SETTINGS)
    defined = DEFINED | {"runs": "", "dead_letter": f"MergeTree SETTINGS {every}, y = 1"}
    told = [statement.split()[2] for statement in setting_statements(defined)]
    assert told == [f"tidegauge.{name}" for name in DEFINED if name != "dead_letter"]
    of_before = {"dead_letter": f"MergeTree SETTINGS {TABLE_SETTINGS[0]}"}
    (statement,) = setting_statements(of_before)
    others = ", ".join(TABLE_SETTINGS[1:])
    assert statement == f"ALTER TABLE tidegauge.dead_letter MODIFY SETTING {others}"


def test_retention_is_set_where_it_is_not_yet():
    statements = list(retention_statements(StoreSettings(keep_latency_days=7), DEFINED))
    assert statements[:2] == [
        "ALTER TABLE tidegauge.results_latency MODIFY SETTING ttl_only_drop_parts = 1",
        "ALTER TABLE tidegauge.results_latency MODIFY TTL toDateTime(time) + toIntervalDay(7)",
    ]
    assert (
        "ALTER TABLE tidegauge.results_resources MODIFY TTL"
        " toDateTime(time) + toIntervalDay(30) WHERE run_id = ''" in statements
    )


def test_retention_is_left_alone_where_it_is_right_and_removed_where_all_is_kept():
    keep = StoreSettings(
        keep_latency_days=7,
        keep_progress_days=0,
        keep_idle_resources_days=0,
        keep_dead_letter_days=0,
        keep_pairs_days=0,
        keep_slices_days=0,
        keep_metrics_days=0,
    )
    defined = DEFINED | {
        "results_latency": "MergeTree TTL toDateTime(time) + toIntervalDay(7) SETTINGS y = 1",
        "dead_letter": "MergeTree TTL toDateTime(time) + toIntervalDay(90)",
    }
    assert list(retention_statements(keep, defined)) == [
        "ALTER TABLE tidegauge.dead_letter REMOVE TTL"
    ]


def test_positions_are_dropped_first_so_that_no_empty_table_is_taken_for_projected():
    names = [statement.split()[4] for statement in drop_statements()]
    assert names[0] == "tidegauge.projection_position"
    assert {"tidegauge.results_latency", "tidegauge.latency_minutes"} < set(names)


def test_a_rebuild_that_gives_the_same_rows_is_equal():
    same = {"a": Digest(2, 7), "b": Digest(0, 0)}
    found = verdict(same, dict(same), {})
    assert (found.state, found.equal) == ("done", True)


def test_a_table_that_differs_is_named_with_what_was_lost():
    before = {"a": Digest(2, 7), "b": Digest(1, 1)}
    found = verdict(before, before | {"a": Digest(1, 3)}, {("results.a", 0): 1})
    assert (found.equal, found.tables[0]["rows_after"]) == (False, 1)
    assert found.sentence == (
        "a: not as before. The bus no longer has the records of 1 rows of results.a/0."
    )
