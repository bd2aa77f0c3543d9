"""Contents of aircraft states, and their reproducibility from a seed."""

import hashlib
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.definitions.domains import load_domain
from tests.unit.generator.made import START_MS, a_load, messages_of, records_of

pytestmark = pytest.mark.unit

FLIGHTS = load_domain("flights")


def made(rate, seconds, **fields):
    return [record for _, record in records_of(rate, seconds, domain=FLIGHTS, **fields)]


def of_one_aircraft(seconds, **content):
    """States of the only aircraft, one per second of the load and of flight."""
    return made(1, seconds, content={"aircraft": 1, "time_factor": 1} | content)


def test_a_state_has_the_columns_of_a_state_vector():
    found = made(400, 1, seed=1, content={"aircraft": 100})
    assert len({one["icao24"] for one in found}) == 100
    assert all(len(one["icao24"]) == 6 and int(one["icao24"], 16) >= 0 for one in found)
    assert found[4]["time_position"] == START_MS + 10
    assert found[4]["scheduled_at"] == (START_MS + 10) * 1000
    for one in found:
        assert 0 <= one["last_contact"] - one["time_position"] < 1_000
        assert -90 <= one["latitude"] <= 90
        assert -180 <= one["longitude"] <= 180
        assert 0 <= one["true_track"] <= 360
        assert one["on_ground"] == (one["velocity"] == 0.0)
        assert not one["on_ground"] or one["baro_altitude"] == one["vertical_rate"] == 0
        assert one["on_ground"] or 180 <= one["velocity"] <= 260
        assert 0 <= one["baro_altitude"] <= 12_500
        assert len(one["squawk"]) == 4
        assert set(one["squawk"]) <= set("01234567")


def test_no_two_states_have_the_same_address_and_time():
    found = made(20_000, 2, content={"aircraft": 500})
    assert len({(one["icao24"], one["time_position"]) for one in found}) == 40_000


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seed": 1}, "6db752c77dcfedd0c91fbb320515eea3"),
        ({"seed": 2}, "b55bafef03a286f9ed53a8eac2822858"),
        (
            {"seed": 1, "content": {"region": "world", "aircraft": 50}},
            "4d00dc33b517962da80ac017d4c8d9b4",
        ),
    ],
)
def test_a_load_has_the_same_bytes_for_ever(fields, expected):
    found = hashlib.sha256()
    for message in messages_of(a_load(500, 3, domain=FLIGHTS, **fields), 25_000):
        found.update(repr(message).encode())
    assert found.hexdigest()[:32] == expected


def test_in_json_it_says_the_same():
    assert made(50, 1, content={"format": "json"}) == made(50, 1)


@given(st.integers(1, 4), st.integers(1, 60), st.sampled_from([1, 7, 250.5, 800]))
@settings(max_examples=15, deadline=None)
def test_shards_and_slices_change_no_record(count, limit, rate):
    shards = [made(rate, 2, limit=limit, shard=(index, count)) for index in range(count)]
    together = sorted((one for shard in shards for one in shard), key=lambda o: o["sequence"])
    assert together == made(rate, 2)


def metres_between(first, second):
    """Great-circle distance, by the haversine formula."""
    (lat1, lon1), (lat2, lon2) = (map(math.radians, place) for place in (first, second))
    half = math.sin((lat2 - lat1) / 2) ** 2
    half += math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6_371_000 * math.asin(math.sqrt(half))


def bearing(first, second):
    """From the first place to the second, degrees clockwise from north."""
    (lat1, lon1), (lat2, lon2) = (map(math.radians, place) for place in (first, second))
    east = math.sin(lon2 - lon1) * math.cos(lat2)
    north = math.cos(lat1) * math.sin(lat2) - math.sin(lat1) * math.cos(lat2) * math.cos(
        lon2 - lon1
    )
    return math.degrees(math.atan2(east, north)) % 360


@pytest.mark.parametrize("seed", range(1, 9))
def test_an_aircraft_goes_where_its_track_points_as_fast_as_it_says(seed):
    states = made(1, 300, seed=seed, content={"aircraft": 1, "time_factor": 10, "region": "world"})
    flying = [
        pair
        for pair in pairwise(states)
        if not (pair[0]["on_ground"] or pair[1]["on_ground"])
        and pair[0]["callsign"] == pair[1]["callsign"]
    ]
    assert len(flying) > 30
    for before, after in flying:
        places = [(one["latitude"], one["longitude"]) for one in (before, after)]
        assert metres_between(*places) == pytest.approx(10 * before["velocity"], rel=0.02)
        apart = (bearing(*places) - before["true_track"] + 180) % 360 - 180
        assert abs(apart) < 1
        climbed = after["baro_altitude"] - before["baro_altitude"]
        if before["vertical_rate"] == after["vertical_rate"]:
            assert climbed == pytest.approx(10 * before["vertical_rate"], abs=0.11)


def test_some_flights_are_emergencies_and_some_depart_from_nowhere_listed():
    found = made(2_000, 1, content={"emergencies": 0.1, "unlisted": 0.2})
    assert sum(one["squawk"] == "7700" for one in found) == pytest.approx(200, abs=45)
    assert sum(one["departure"] == "ZZZZ" for one in found) == pytest.approx(400, abs=60)
    none = made(2_000, 1, content={"emergencies": 0, "unlisted": 0})
    assert not any(one["squawk"] == "7700" or one["departure"] == "ZZZZ" for one in none)


def test_a_cell_is_named_by_its_south_west_corner():
    for one in made(500, 1, content={"region": "world"}):
        north, east = math.floor(one["latitude"] / 5) * 5, math.floor(one["longitude"] / 5) * 5
        name = (
            f"{'S' if north < 0 else 'N'}{abs(north):02d}{'W' if east < 0 else 'E'}{abs(east):03d}"
        )
        assert one["cell"] == name


def test_europe_is_in_europe():
    found = made(2_000, 1)
    assert all(30 < one["latitude"] < 72 and -15 < one["longitude"] < 35 for one in found)
    world = made(2_000, 1, content={"region": "world"})
    assert any(one["latitude"] < 0 for one in world)
