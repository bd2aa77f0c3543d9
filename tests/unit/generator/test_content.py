"""Which observation each record is."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from services.generator.ahead import Content, Load
from services.generator.content import fill_with_sites, lay_out
from services.generator.pacing import slices
from services.generator.sample import read_sample
from services.generator.shapes import ConstantShape

pytestmark = pytest.mark.unit

SAMPLE = read_sample()
START_MS = 1_700_000_000_000


def records_of(rate, seconds, limit=50_000):
    load = Load(Content(SAMPLE), ConstantShape(rate), "r1", START_MS, seconds)
    decoded = []
    for part in slices(load.shape, seconds, limit):
        prepared = load.prepare(part)
        for key, value in zip(prepared.keys, prepared.values, strict=True):
            name, record = codec.decode(value)
            assert key.decode() == record["measurement_id"]
            decoded.append((name, record))
    return decoded


def incomplete_windows(records):
    """Windows (site and second) that lack a lane of a kind, and how many windows there are."""
    seen = defaultdict(Counter)
    lanes = {}
    for name, record in records:
        window = (record["measurement_id"], record["observed_at"])
        seen[window][(name, record["lane"])] += 1
        lanes[window] = record["num_lanes"]
    wrong = [
        window
        for window, counts in seen.items()
        if len(counts) != 2 * lanes[window] or set(counts.values()) != {1}
    ]
    return wrong, len(seen)


def test_the_sample_has_twelve_sites_nineteen_lanes_and_thirty_minutes():
    assert SAMPLE.site_lanes == (2, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1)
    assert len(SAMPLE.lanes) == 19
    assert SAMPLE.minutes == 30


@pytest.mark.parametrize("lanes", range(19))
def test_every_remainder_is_filled_with_whole_sites(lanes):
    chosen = fill_with_sites(SAMPLE.site_lanes, lanes)
    assert sum(SAMPLE.site_lanes[site] for site in chosen) == lanes
    assert len(set(chosen)) == len(chosen)


def test_sites_that_cannot_fill_a_remainder_are_an_error():
    with pytest.raises(ValueError, match="leave 1 lanes unfilled"):
        fill_with_sites([2, 2], 3)


def test_the_first_records_are_flow_and_speed_of_the_first_lanes_in_the_first_minute():
    records = records_of(rate=400, seconds=1)
    assert [name for name, _ in records[:4]] == [
        "traffic_flow",
        "traffic_speed",
        "traffic_flow",
        "traffic_speed",
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
    records = records_of(rate=2, seconds=32)
    first_site = [r["flow_vehicles_per_hour"] for n, r in records if n == "traffic_flow"]
    # 2 records a second are 1 lane: the first 1-lane site, RWS01_MONICA_00D00219805560200007_1.
    assert records[0][1]["measurement_id"] == "RWS01_MONICA_00D00219805560200007_1"
    assert first_site[:2] == [1680, 660]
    assert first_site[30:32] == [1680, 660]
    assert records[62][1]["observed_at"] == START_MS + 31_000


def test_later_copies_of_a_site_have_ids_of_their_own():
    layout = lay_out(SAMPLE, 2 * 19 * 2)
    ids = layout.measurement_ids.to_pylist()
    assert ids[0] == "RWS01_MONIBAS_0020vwm1607ra_1"
    assert ids[19] == "RWS01_MONIBAS_0020vwm1607ra_1#0001"
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
    assert sum(1 if name == "traffic_flow" else -1 for name, _ in records) == 3


@given(st.floats(0.3, 900), st.integers(1, 20).map(lambda n: 2 * n))
@settings(max_examples=30, deadline=None)
def test_whatever_the_rate_only_odd_seconds_have_one_incomplete_window(rate, limit):
    records = records_of(rate, 3, limit)
    assert [record["sequence"] for _, record in records] == list(range(len(records)))
    per_second = Counter(record["observed_at"] for _, record in records)
    wrong, _ = incomplete_windows(records)
    assert len(wrong) == sum(count % 2 for count in per_second.values())
    for _, record in records:
        assert record["scheduled_at"] // 1_000_000 * 1000 == record["observed_at"]


def test_slices_do_not_change_the_records():
    assert records_of(76, 2, limit=6) == records_of(76, 2)


def test_the_columns_of_a_lane_come_from_the_same_lane_of_the_sample():
    layout = lay_out(SAMPLE, 400)
    names = np.array(SAMPLE.lanes)[layout.source_lanes].tolist()
    assert layout.lanes.to_pylist() == names
