"""The observation of each record."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.content import Content
from schemas.load import Constant, Replay
from schemas.validation_errors import DefinitionError
from services.definitions.domains import content_of
from services.generator.dataset_plan import LoadShard
from tests.unit.domains.traffic.sample import NDW, key_distribution, traffic_content
from tests.unit.generator.loads import all_loads
from tests.unit.generator.made import START_MS, TRAFFIC, a_load, messages_of, records_of

pytestmark = pytest.mark.unit


def incomplete_windows(records):
    """Windows (site and second) that lack a lane of a kind, and how many windows there are."""
    seen = defaultdict(Counter)
    lanes = defaultdict(set)
    for name, record in records:
        window = (record["measurement_id"], record["observed_at"])
        seen[window][(name, record["lane"])] += 1
        lanes[window].add(record["num_lanes"])
    wrong = [
        window
        for window, counts in seen.items()
        if {len(counts)} != {2 * n for n in lanes[window]} or set(counts.values()) != {1}
    ]
    return wrong, len(seen)


def test_the_sample_has_twelve_sites_nineteen_lanes_and_thirty_minutes():
    assert NDW.site_lanes.tolist() == [2, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1]
    assert len(NDW.lane_names) == 19
    assert NDW.row_counts.tolist() == [30] * 19


@pytest.mark.parametrize("lanes", range(19))
def test_every_remainder_is_filled_with_whole_sites(lanes):
    chosen = key_distribution.fill_with_sites(NDW.site_lanes.tolist(), lanes)
    assert sum(width for _, width in chosen) == lanes
    assert len({site for site, _ in chosen}) == len(chosen)
    assert all(width == NDW.site_lanes[site] for site, width in chosen)


def test_where_no_site_fits_one_gives_some_of_its_lanes():
    assert key_distribution.fill_with_sites([2, 2], 3) == ((0, 2), (1, 1))


def test_the_first_records_are_flow_and_speed_of_the_first_lanes_in_the_first_minute():
    records = records_of(400, seconds=1)
    assert [name for name, _ in records[:4]] == [
        "flow",
        "speed",
        "flow",
        "speed",
    ]
    assert records[0][1] == {
        "measurement_id": "RWS01_MONIBAS_0020vwm1607ra_1",
        "lane": "lane1",
        "num_lanes": 2,
        "latitude": 51.44443,
        "longitude": 5.42692,
        "observed_at": START_MS,
        "period_s": 60,
        "accuracy_percent": 100,
        "flow_vehicles_per_hour": 660,
        "sequence": 0,
        "run_id": "r1",
        "scheduled_at": START_MS * 1000,
    }
    assert records[3][1]["lane"] == "lane2"
    assert records[3][1]["speed_km_per_hour"] == 89.0
    assert records[3][1]["scheduled_at"] == START_MS * 1000 + 7_500


def test_one_source_minute_lasts_one_second_and_the_sample_begins_again_after_thirty():
    records = records_of(2, seconds=32)
    first_site = [r["flow_vehicles_per_hour"] for n, r in records if n == "flow"]
    # 2 records a second are 1 lane: the first 1-lane site, RWS01_MONICA_00D00219805560200007_1.
    assert records[0][1]["measurement_id"] == "RWS01_MONICA_00D00219805560200007_1"
    assert first_site[:2] == [1680, 660]
    assert first_site[30:32] == [1680, 660]
    assert records[62][1]["observed_at"] == START_MS + 31_000


def test_later_copies_of_a_site_have_ids_of_their_own():
    ids = [record["measurement_id"] for _, record in records_of(2 * 19 * 2, seconds=1)]
    assert ids[0] == "RWS01_MONIBAS_0020vwm1607ra_1"
    assert ids[38] == "RWS01_MONIBAS_0020vwm1607ra_1#0001"
    assert len(set(ids)) == 24


@pytest.mark.parametrize("rate", [2, 38, 100, 400, 1000, 4_000, *range(40, 78, 2)])
def test_every_window_is_complete_at_every_even_rate(rate):
    wrong, windows = incomplete_windows(records_of(rate, seconds=2))
    assert wrong == []
    assert windows > 0


@pytest.mark.parametrize("rate", [1, 3, 37, 39, 401])
def test_an_odd_rate_leaves_one_flow_record_a_second_without_its_speed(rate):
    records = records_of(rate, seconds=3)
    wrong, _ = incomplete_windows(records)
    assert len(wrong) == 3
    per_kind = Counter(name for name, _ in records)
    assert per_kind.total() == 3 * rate


@given(all_loads(), st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_whatever_the_load_sequences_have_no_gap_and_only_odd_seconds_lack_a_record(load, limit):
    records = records_of(load, 3, 10 * limit)
    assert [record["sequence"] for _, record in records] == list(range(len(records)))
    for _, record in records:
        assert record["scheduled_at"] // 1_000_000 * 1000 == record["observed_at"]
    per_second = Counter(record["observed_at"] for _, record in records)
    wrong, _ = incomplete_windows(records)
    assert len(wrong) <= sum(count % 2 for count in per_second.values())


@given(st.floats(0.3, 900), st.integers(1, 20).map(lambda n: 2 * n))
@settings(max_examples=30, deadline=None)
def test_whatever_the_rate_only_odd_seconds_have_one_incomplete_window(rate, limit):
    records = records_of(rate, 3, limit)
    per_second = Counter(record["observed_at"] for _, record in records)
    wrong, _ = incomplete_windows(records)
    assert len(wrong) <= sum(count % 2 for count in per_second.values())


def test_slices_do_not_change_the_records():
    assert records_of(76, 2, limit=6) == records_of(76, 2)


def test_the_same_seed_gives_the_same_bytes():
    content = {"keys": {"distribution": "zipf", "sites": 50}}
    faults = {"late": 0.1, "duplicate": 0.1, "undecodable": 0.1, "impossible": 0.1}
    first, again, other = (
        messages_of(a_load(500, 3, content=content, faults=faults, seed=seed)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@given(all_loads(), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_instances_share_a_load_without_gap_or_double(load, instances):
    parts = [records_of(load, 2, shard=(index, instances))[:5_000] for index in range(instances)]
    together = sorted((pair for part in parts for pair in part), key=lambda p: p[1]["sequence"])
    whole = records_of(load, 2)
    assert together[:5_000] == whole[:5_000]
    assert all(len(part) == 5_000 for part in parts) or together == whole


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 200))
def test_a_shard_counts_what_it_has(index, count, end):
    shard = LoadShard(index % count, count)
    assert shard.before(end) == len(shard.sequences(0, end))


def test_shorter_seconds_let_event_time_run_ahead():
    records = records_of(100, 2, content={"second_ms": 500})
    observed = Counter(record["observed_at"] - START_MS for _, record in records)
    assert observed == {0: 50, 1000: 50, 2000: 50, 3000: 50}
    assert incomplete_windows(records)[0] == []


def test_every_site_may_have_the_same_number_of_lanes():
    records = records_of(100, 1, content={"lanes_per_site": 4})
    lanes = {record["measurement_id"]: record["num_lanes"] for _, record in records}
    assert sorted(lanes.values()) == [2, *[4] * 12]
    assert incomplete_windows(records)[0] == []
    assert {record["lane"] for _, record in records} == {"lane1", "lane2", "lane3", "lane4"}


def records_by_site(records):
    return Counter(record["measurement_id"] for _, record in records)


def test_a_single_key_has_all_records():
    records = records_of(100, 2, content={"keys": {"distribution": "single"}})
    assert records_by_site(records) == {"RWS01_MONIBAS_0020vwm1607ra_1": 200}
    assert incomplete_windows(records)[0] == []


def test_uniform_keys_have_the_same_number_of_records():
    records = records_of(100, 2, content={"keys": {"distribution": "uniform", "sites": 10}})
    assert set(records_by_site(records).values()) == {20}


def test_zipf_keys_have_records_by_the_inverse_of_their_rank():
    content = {"keys": {"distribution": "zipf", "sites": 3}}
    # Weights 1, 1/2, 1/3 of 1100 records a second: 600, 300, 200.
    counts = records_by_site(records_of(1100, 4, content=content))
    assert sorted(counts.values()) == [800, 1200, 2400]


def test_normal_keys_have_most_records_in_the_middle():
    content = {"keys": {"distribution": "normal", "sites": 5, "spread": 0.2}}
    counts = records_by_site(records_of(2_000, 5, content=content))
    # Densities at -2, -1, 0, 1, 2 standard deviations: 0.135, 0.607, 1, 0.607, 0.135 of 2.484.
    shares = sorted(count / 10_000 for count in counts.values())
    assert shares == pytest.approx([0.054, 0.054, 0.244, 0.244, 0.403], abs=0.002)


@given(
    st.builds(
        dict,
        distribution=st.sampled_from(["uniform", "normal", "zipf", "single"]),
        sites=st.integers(1, 300),
        exponent=st.floats(0.2, 3),
        spread=st.floats(0.05, 2),
    ),
    st.integers(1, 300).map(lambda n: 2 * n),
)
@settings(max_examples=40, deadline=None)
def test_windows_are_complete_whatever_the_key_distribution(keys, rate):
    records = records_of(rate, 2, content={"keys": keys})
    assert incomplete_windows(records)[0] == []
    assert len(records) == 2 * rate


def test_a_replay_keeps_recorded_times_at_its_speed_and_copies_sites():
    load = Replay(speed=120)
    records = records_of(load, 2, content={"copies": 2})
    # 19 lanes × 2 kinds × 2 copies every recorded minute, which lasts half a second.
    due = Counter(record["scheduled_at"] - START_MS * 1000 for _, record in records)
    assert due == {0: 76, 500_000: 76, 1_000_000: 76, 1_500_000: 76}
    assert {record["observed_at"] - START_MS for _, record in records} == {0, 500, 1000, 1500}
    assert incomplete_windows(records)[0] == []
    flows = [
        record["flow_vehicles_per_hour"]
        for name, record in records
        if name == "flow" and record["measurement_id"].endswith("1607ra_1")
    ]
    assert flows[:2] == [660, 1200]


def test_json_has_the_values_that_avro_has():
    load = Constant(rate_per_second=76)
    assert records_of(load, 3, content={"format": "json"}) == records_of(load, 3)


def test_json_is_one_object_in_the_order_of_the_schema():
    first = messages_of(a_load(400, 1, content={"format": "json"}))[0]
    assert first[2] == (
        b'{"measurement_id":"RWS01_MONIBAS_0020vwm1607ra_1","lane":"lane1","num_lanes":2,'
        b'"latitude":51.44443,"longitude":5.42692,"observed_at":1700000000000,"period_s":60,'
        b'"accuracy_percent":100,"flow_vehicles_per_hour":660,"sequence":0,"run_id":"r1",'
        b'"scheduled_at":1700000000000000}'
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"source": "elsewhere"}, r"content\.source: .*domain"),
        ({"columns": {"colour": "red"}}, "columns names 'colour'"),
        (
            {"lanes_per_site": 2, "keys": {"distribution": "zipf"}},
            "lanes_per_site and a key distribution exclude each other",
        ),
    ],
)
def test_a_content_that_makes_no_sense_is_refused(content, reason):
    with pytest.raises(DefinitionError, match=reason):
        traffic_content(**content)


def test_the_columns_of_a_lane_come_from_the_same_lane_of_the_sample():
    lanes = [record["lane"] for name, record in records_of(76, 1) if name == "flow"]
    assert lanes == np.tile(NDW.lane_names, 2).tolist()


def test_the_content_of_an_earlier_request_means_what_it_meant():
    text = (
        '{"source":"ndw","path":"","columns":{},"format":"avro","second_ms":1000,'
        '"lanes_per_site":null,"copies":1,"keys":{"distribution":"zipf","sites":7}}'
    )
    content = content_of(TRAFFIC, Content.model_validate_json(text))
    assert (content.source, content.lanes_per_site) == ("ndw", None)
    assert (content.keys.distribution, content.keys.sites) == ("zipf", 7)


def test_an_option_that_the_domain_does_not_have_is_refused():
    with pytest.raises(
        DefinitionError, match=r"For the domain traffic content\.colour: There is no"
    ):
        traffic_content(colour="red")
