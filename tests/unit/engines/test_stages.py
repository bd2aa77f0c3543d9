"""The kinds of stages shared by Python engines, row by row."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from stages.closing import Closed
from stages.event_time import GRACE_MS, EventTime
from stages.flow import IDLE_MS, Flow, InMemory
from stages.kinds import (
    MOST_KEPT,
    PUBLISHED,
    Aggregates,
    Change,
    Counted,
    Join,
    Kept,
    PerRow,
    WindowJoin,
)
from stages.packing import packed, unpacked
from stages.reading import READ_MS, Reading
from stages.records import Row

from schemas.codec import DecodeError, decode_json
from schemas.domain import DomainSpec
from tests.gem_packs import IN_SECONDS
from tests.unit.engines.rows import (
    BASE_MS,
    DEADLINE_MS,
    GEM_PACKS,
    TRAFFIC,
    flow,
    kind_of,
    observed,
    plan_of,
    sold,
    speed,
)


def test_a_join_publishes_a_pair_once_with_the_first_record_of_each_input(tmp_path: Path) -> None:
    join, kept = kind_of(TRAFFIC, tmp_path, "join"), Kept()
    assert isinstance(join, Join)
    assert join.add(kept, flow(1, 0, 100)) == []
    assert join.add(kept, flow(1, 0, 999)) == []
    assert join.add(kept, speed(1, 1, 50.0)) == []
    (row,) = join.add(kept, speed(1, 0, 80.0))
    assert row.fields == {
        "run_id": "r",
        "measurement_id": "A",
        "lane": 1,
        "observed_at": BASE_MS,
        "num_lanes": 2,
        "flow_vehicles_per_hour": 100,
        "speed_km_per_hour": 80.0,
    }
    assert join.add(kept, flow(1, 0, 100)) == join.add(kept, speed(1, 0, 80.0)) == []


def test_a_counted_window_is_due_when_all_its_lanes_are_there(tmp_path: Path) -> None:
    window, kept = kind_of(TRAFFIC, tmp_path, "tumbling"), Kept()
    assert isinstance(window, Counted)
    assert window.add(kept, flow(1, 0, 100)) == window.add(kept, flow(1, 0, 100)) == []
    assert window.add(kept, flow(2, 0, 50)) == window.add(kept, speed(1, 0, 60.0)) == []
    (row,) = window.add(kept, speed(2, 0, 80.0))
    assert row.fields["accumulated_flow_vehicles_per_hour"] == 150
    assert row.fields["average_speed_km_per_hour"] == 70.0
    assert (row.fields["window_start"], row.fields["window_end"]) == (BASE_MS, BASE_MS + 1000)
    assert window.add(kept, speed(2, 0, 80.0)) == []


def test_a_counted_change_waits_for_all_its_parts_in_any_order(tmp_path: Path) -> None:
    change, kept = kind_of(TRAFFIC, tmp_path, "sliding"), Kept()
    assert isinstance(change, Change)
    found = []
    for second, vehicles, km in ((2, 300, 0.0), (0, 100, 50.0), (1, 200, 0.0)):
        sums = {
            "window_start": BASE_MS + 1000 * second,
            "accumulated_flow_vehicles_per_hour": vehicles,
            "average_speed_km_per_hour": km,
        }
        found.append(change.add(kept, observed("", 0, second, **sums)))
    assert found[:2] == [[], []]
    (row,) = found[2]
    assert row.fields == {
        "run_id": "r",
        "measurement_id": "A",
        "window_start": BASE_MS,
        "window_end": BASE_MS + 3000,
        "flow_change_short": 0.5,
        "flow_change_long": 2.0,
        "speed_change_short": None,
        "speed_change_long": -1.0,
    }


def test_a_window_join_publishes_each_pair_in_each_window_of_both(tmp_path: Path) -> None:
    join, kept = kind_of(GEM_PACKS, tmp_path, "conversions"), Kept()
    assert isinstance(join, WindowJoin)
    start_ms = BASE_MS // 4000 * 4000
    rows = []
    for number, (source, at_s) in enumerate((("purchases", 1), ("ads", 5), ("ads", 2))):
        fields = {"run_id": "r", "sequence": number, "user_id": 1, "gem_pack_id": 7, "price": 9}
        rows += join.add(kept, Row(fields, source, start_ms + 1000 * at_s, start_ms))
    pairs = [(row.fields["ad"], (row.fields["window_start"] - start_ms) // 1000) for row in rows]
    assert pairs == [(1, 0), (2, 0), (2, -4)]
    assert {row.fields["purchase"] for row in rows} == {0}


def test_a_window_join_leaves_out_records_that_are_late_for_a_window(tmp_path: Path) -> None:
    plan = plan_of(GEM_PACKS, tmp_path, "conversions")
    join, kept = plan.kind_of(plan.stages[-1]), Kept()
    start_ms = BASE_MS // 8000 * 8000
    made = []

    def read(topic: str, event_ms: int, appended_ms: int) -> None:
        fields = dict.fromkeys(("user_id", "gem_pack_id", "geo", "run_id"), "1")
        numbers = {"sequence": len(made), "price": 9.0, "scheduled_at": 0}
        times = {"time": start_ms + event_ms}
        value = json.dumps(fields | numbers | times).encode()
        row = plan.row_of(topic, value, start_ms + appended_ms)
        assert row is not None
        made.append([one.fields["window_start"] - start_ms for one in join.add(kept, row)])

    purchases, ads = GEM_PACKS.topics
    read(purchases, 7_000, 7_000)
    read(ads, 8_000, 8_000)
    read(purchases, 8_000, 8_100)  # passes the end of the first window
    read(ads, 7_500, 9_100)
    read(ads, 7_500, 9_101)
    assert made == [[], [4_000], [8_000, 4_000], [4_000, 4_000, 0], [4_000, 4_000]]


def test_a_window_is_closed_a_second_after_event_time_has_passed_its_end(tmp_path: Path) -> None:
    window, kept = kind_of(IN_SECONDS, tmp_path, "average"), Kept()
    assert isinstance(window, Closed)
    closing_ms = BASE_MS + 1_110
    rows = (
        sold(0.2, 4),
        sold(1.1, 100),  # passes the end of the first window
        sold(0.9, 8)._replace(appended_ms=closing_ms + GRACE_MS),
        sold(0.9, 50)._replace(appended_ms=closing_ms + GRACE_MS + 1),
    )
    for row in rows:
        window.times.seen(row)
        assert window.add(kept, row) == []
    due_ms = closing_ms + GRACE_MS
    assert window.due_ms(kept, due_ms) == due_ms
    assert window.due(kept, due_ms) == []
    (row,) = window.due(kept, due_ms + 1)
    assert (row.fields["window_start"], row.fields["average_price"]) == (BASE_MS, 6.0)
    assert list(kept) == [BASE_MS + 1000]
    last_ms = rows[1].appended_ms + DEADLINE_MS + GRACE_MS
    assert window.due(kept, last_ms) == []
    (last,) = window.due(kept, last_ms + 1)
    assert last.fields["average_price"] == 100.0


def test_a_window_of_a_quiet_key_stays_open_while_other_keys_have_records(tmp_path: Path) -> None:
    window, quiet, other = kind_of(IN_SECONDS, tmp_path, "average"), Kept(), Kept()
    window.add(quiet, sold(0.1, 4))
    window.add(other, sold(0.2, 9)._replace(appended_ms=BASE_MS + 9_000))
    due_ms = BASE_MS + 9_000 + DEADLINE_MS + GRACE_MS
    assert window.due(quiet, due_ms) == []
    window.add(quiet, sold(0.3, 8)._replace(appended_ms=BASE_MS + 8_500))
    (row,) = window.due(quiet, due_ms + 1)
    assert row.fields["average_price"] == 6.0
    window.add(quiet, sold(0.4, 99))
    assert window.due(quiet, due_ms + DEADLINE_MS) == []


def test_event_time_is_that_of_the_input_that_is_behind(tmp_path: Path) -> None:
    window, kept = kind_of(IN_SECONDS, tmp_path, "peak"), Kept()
    for row in (sold(0.5, 4), sold(3, 4)):
        window.times.seen(row)
        window.add(kept, row)
    assert window.due(kept, BASE_MS + 9_000) == []
    for ad in (sold(0.6, 6)._replace(source="ads"), sold(1, 9)._replace(source="ads")):
        window.times.seen(ad)
        window.add(kept, ad)
    (row,) = window.due(kept, BASE_MS + 3_010 + GRACE_MS + 1)
    assert row.fields["highest_price"] == 6


def test_event_time_does_not_depend_on_the_order_of_reading() -> None:
    rows = [sold(at, 1) for at in (5.0, 9.2, 2.4, 6.0, 9.1, 0.0)]
    rows += [sold(6.5, 1)._replace(appended_ms=BASE_MS + ms) for ms in (900, 9_500)]
    for given in (rows, rows[::-1], sorted(rows, key=lambda row: row.appended_ms)):
        times, restored = EventTime(DEADLINE_MS), EventTime(DEADLINE_MS)
        for row in given:
            times.seen(row)
        restored.merge(times)
        for one in (times, restored):
            found = [one.passed_ms("r", ["purchases"], BASE_MS + 1000 * at) for at in range(5, 11)]
            assert [ms - BASE_MS for ms in found] == [900, 900, 9_110, 9_110, 9_110, math.inf]


def test_a_record_that_was_late_is_left_out_whenever_that_is_known(tmp_path: Path) -> None:
    window, kept = kind_of(IN_SECONDS, tmp_path, "average"), Kept()
    for row in (sold(0.2, 4), sold(0.9, 50)._replace(appended_ms=BASE_MS + 2_111), sold(1.1, 9)):
        window.times.seen(row)
        window.add(kept, row)
    assert [row.fields["average_price"] for row in window.due(kept, BASE_MS + 3_000)] == [4.0]


def test_rows_by_themselves_are_kept_or_get_the_columns_of_a_table(tmp_path: Path) -> None:
    dear = kind_of(GEM_PACKS, tmp_path, "dear")
    assert isinstance(dear, PerRow)
    assert [len(dear.add(sold(0, price))) for price in (100, 101)] == [0, 1]
    enriched = kind_of(GEM_PACKS, tmp_path, "enriched")
    assert enriched.add(sold(0, 1, geo="nowhere")) == []


def stored(kept: Kept) -> Kept:
    """The state of a key after a round trip through a topic."""
    return Kept({at: unpacked(packed(value)) for at, value in kept.items()})


def observations() -> list[Row]:
    return [flow(1, 0, 100), flow(2, 0, 50), speed(1, 0, 60.5), speed(2, 0, 80.0)]


def sums() -> list[Row]:
    names = ("accumulated_flow_vehicles_per_hour", "average_speed_km_per_hour")
    return [
        observed("", 0, second, window_start=BASE_MS + 1000 * second, **dict.fromkeys(names, 7.5))
        for second in range(3)
    ]


def purchases() -> list[Row]:
    return [sold(0.2, 4, geo="K\u00f6ln"), sold(0.3, 4, geo=None)]


def clicks() -> list[Row]:
    return [
        row._replace(source=of) for row, of in zip(purchases(), ("ads", "purchases"), strict=True)
    ]


@pytest.mark.parametrize(
    ("domain", "stage", "rows"),
    [
        (TRAFFIC, "join", observations()),
        (TRAFFIC, "tumbling", observations()),
        (TRAFFIC, "sliding", sums()),
        (GEM_PACKS, "conversions", clicks()),
        (GEM_PACKS, "average", purchases()),
    ],
    ids=["join", "counted", "change", "window join", "closed"],
)
def test_what_is_kept_of_a_key_can_go_through_a_topic_and_back(
    tmp_path: Path, domain: DomainSpec, stage: str, rows: Iterable[Row]
) -> None:
    kind, kept, restored = kind_of(domain, tmp_path, stage), Kept(), Kept()
    for row in rows:
        assert kind.add(kept, row) == kind.add(restored, row)
        restored = stored(restored)
        assert repr(restored) == repr(kept) != "{}"


def test_what_is_kept_of_a_record_is_what_the_output_needs(tmp_path: Path) -> None:
    kind, kept = kind_of(TRAFFIC, tmp_path, "join"), Kept()
    kind.add(kept, observed("flow", 1, 0, flow_vehicles_per_hour=100, latitude=51.4))
    (group,) = kept.values()
    (row,) = group.values()
    assert row.fields == {
        "run_id": "r",
        "measurement_id": "A",
        "lane": 1,
        "num_lanes": 2,
        "flow_vehicles_per_hour": 100,
    }
    assert row[1:] == flow(1, 0, 100)[1:]


def test_a_counted_window_keeps_sums_and_not_records(tmp_path: Path) -> None:
    kind, kept = kind_of(TRAFFIC, tmp_path, "tumbling"), Kept()
    for row in (flow(1, 0, 100), speed(2, 0, 80.0), flow(2, 0, 50)):
        kind.add(kept, row._replace(fields={**row.fields, "latitude": 51.4}))
    (window,) = kept.values()
    second = BASE_MS // 1000
    assert list(window.identities) == [
        f"('flow', {second}, 1)",
        f"('speed', {second}, 2)",
        f"('flow', {second}, 2)",
    ]
    assert (window.counts, window.most) == ([2, 1], 2)
    assert window.values == [{1, 2}, 150, [80.0, 1]]
    assert window.appended_ms == max(row.appended_ms for row in (flow(1, 0, 1), speed(2, 0, 1.0)))


@pytest.mark.parametrize(
    ("function", "result"),
    [
        *(("first", 7), ("sum", 19), ("mean", 4.75), ("min", 2)),
        *(("max", 7), ("count", 4), ("count_distinct", 3)),
    ],
)
def test_an_aggregate_of_rows_one_by_one(function: str, result: float) -> None:
    aggregates = Aggregates(
        {"aggregates": [{"column": "c", "function": function, "of": ["a.x", "b.y"]}]}
    )
    rows = [("a", 5, 2), ("b", 7, 1), ("a", None, 0), ("b", 2, 3), ("a", 5, 4)]
    kept = aggregates.none()
    assert aggregates.results(kept) == {"c": None}
    for source, value, appended_ms in rows:
        aggregates.add(kept, Row({"x": value, "y": value}, source, BASE_MS, appended_ms))
    aggregates.add(kept, Row({"x": 99, "y": 99}, "c", BASE_MS, 0))
    assert aggregates.results(kept) == {"c": result}


def test_a_mark_is_the_same_one_after_it_went_through_a_topic() -> None:
    assert unpacked(packed(PUBLISHED)) is PUBLISHED


def test_what_is_kept_has_a_bound() -> None:
    kept = Kept()
    for at in range(MOST_KEPT + 3):
        kept[at] = True
    assert (len(kept), min(kept)) == (MOST_KEPT, 3)


def test_a_flow_copies_what_does_not_decode_and_publishes_the_rest(tmp_path: Path) -> None:
    stages = Flow(plan_of(TRAFFIC, tmp_path, "ingest", "parse"))
    topic = TRAFFIC.topics[0]
    assert stages.read(topic, b"A", b"{", BASE_MS) == [("output.mine.ingest", b"A", b"{")]
    value = json.dumps(
        dict.fromkeys(stages._plan.records["traffic_flow"].columns, 1)
        | {"run_id": "r", "measurement_id": "A", "lane": "1"}
    ).encode()
    copied, parsed = stages.read(topic, b"A", value, BASE_MS)
    assert copied == ("output.mine.ingest", b"A", value)
    assert parsed[:2] == ("output.mine.parse", "A")
    record = stages._plan.records["output_parse"]
    fields = record.decode(parsed[2])
    assert fields is not None
    assert fields["flow_vehicles_per_hour"] == 1
    assert fields["speed_km_per_hour"] is None
    assert stages.read(topic, b"A", None, BASE_MS) == []


def test_states_in_memory_are_those_of_keys_used_last() -> None:
    states = InMemory(1_000, most_keys=2)
    for key in ("a", "b", "a", "c"):
        states.of(key, 0)[1] = key
    assert dict(states) == {"a": {1: "a"}, "c": {1: "c"}}


def test_states_in_memory_are_dropped_after_a_time_unless_a_window_is_open() -> None:
    states, found = InMemory(1_000), []
    for now_ms, key in enumerate(("a", "b", "c", "d", "b")):
        states.of(key, now_ms)
    for reached_ms in (1_000, 1_001, 1_003, 1_004):
        states.expire(reached_ms, {"d"})
        found.append("".join(states))
    assert found == ["acdb", "cdb", "db", "db"]


def test_a_flow_forgets_a_key_whose_rows_are_old(tmp_path: Path) -> None:
    stages = Flow(plan_of(GEM_PACKS, tmp_path, "conversions"))
    join, row = stages.stages[-1], sold(0, 1)
    join.add(row, row.appended_ms)
    kept_ms = IDLE_MS + join.kind.size_ms
    for later_ms, left in ((kept_ms, 1), (kept_ms + 1, 0)):
        assert stages.tick(row.appended_ms + later_ms) == []
        assert len(join._states) == left


def test_time_is_that_of_the_partition_that_is_behind() -> None:
    reading = Reading({"t": [5, 5]})
    for partition in range(2):
        reading.end("t", partition, 5)
    assert reading.reached_ms(BASE_MS) == BASE_MS - READ_MS
    reading.end("t", 0, 8)
    reading.read("t", 0, 5, BASE_MS - 700)
    assert (reading.lag, reading.reached_ms(BASE_MS)) == (2, BASE_MS - 700)
    reading.read("t", 0, 7, BASE_MS - 600, 2)
    assert (reading.lag, reading.count) == (0, 3)
    assert reading.reached_ms(BASE_MS) == BASE_MS - READ_MS


def test_nothing_is_known_to_be_read_before_the_ends_of_all_partitions_are() -> None:
    reading = Reading({"t": [5, 5]})
    reading.begin("t", 0, 7)
    reading.end("t", 0, 7)
    reading.end("t", 1, -1001)
    assert (reading.lag, reading.reached_ms(BASE_MS)) == (0, 0)
    reading.end("t", 1, 5)
    assert reading.reached_ms(BASE_MS) == BASE_MS - READ_MS


RECORDS = [
    *({}, {"flow_vehicles_per_hour": 2**31}, {"sequence": 2**31}, {"latitude": 1}),
    *({"sequence": 2**63}, {"lane": "\ud800"}, {"lane": 1}, {"num_lanes": True}),
    *({"latitude": "1"}, {"latitude": 10**400}, {"latitude": None}, {"num_lanes": 1.0}),
]


@pytest.mark.parametrize("other", RECORDS, ids=str)
def test_json_is_decoded_as_by_the_codec(tmp_path: Path, other: dict[str, Any]) -> None:
    record = plan_of(TRAFFIC, tmp_path, "parse").records["traffic_flow"]
    row = dict.fromkeys(record.columns, 1) | {"latitude": 1.5, "longitude": 2.5}
    row |= dict.fromkeys(("run_id", "measurement_id", "lane"), "1") | other
    value = json.dumps(row).encode()
    try:
        expected = decode_json("traffic_flow", value, TRAFFIC.codec)
    except DecodeError:
        expected = None
    assert repr(record.decode_json(value)) == repr(expected)


def test_what_is_no_json_record_is_not_decoded(tmp_path: Path) -> None:
    record = plan_of(TRAFFIC, tmp_path, "parse").records["traffic_flow"]
    for value in (None, b"", b"[]", b"{}", b"1", b"[" * 100_000, b"\xff"):
        assert record.decode_json(value) is None


def test_an_int_beyond_32_bits_is_not_decoded(tmp_path: Path) -> None:
    record = plan_of(TRAFFIC, tmp_path, "parse").records["traffic_flow"]
    row = dict.fromkeys(record.columns, 1) | {"latitude": 1.5, "longitude": 2.5}
    row |= dict.fromkeys(("run_id", "measurement_id", "lane"), "1")
    assert record.decode(record.encode(row)) == row
    assert record.decode(record.encode(row | {"num_lanes": 2**31})) is None
