"""Recorded states: the records of a replay against a brute force over files as OpenSky writes
them."""

import gzip
import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest

from schemas.load import Replay
from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.row_files import InputError
from services.generator.look import looked
from tests.unit.generator.made import START_MS, a_plan, a_request, records_of

pytestmark = pytest.mark.unit

FLIGHTS = load_domain("flights")
START_S = 1_767_268_800
STATE = {
    "icao24": "3c6444",
    "callsign": "DLH1    ",
    "origin_country": "Germany",
    "time_position": START_S,
    "last_contact": START_S + 1,
    "longitude": 8.57,
    "latitude": 50.03,
    "baro_altitude": 900.5,
    "on_ground": False,
    "velocity": 100.25,
    "true_track": 90.0,
    "vertical_rate": -3.25,
    "sensors": None,
    "geo_altitude": 950.0,
    "squawk": "7700",
    "spi": True,
    "position_source": 2,
}
DATA_SET = {  # names of OpenSky's data sets
    "time_position": "lastposupdate",
    "last_contact": "lastcontact",
    "longitude": "lon",
    "latitude": "lat",
    "baro_altitude": "baroaltitude",
    "on_ground": "onground",
    "true_track": "heading",
    "vertical_rate": "vertrate",
    "geo_altitude": "geoaltitude",
}


def made(path, load, seconds, **content):
    content = {"source": "file", "path": str(path)} | content
    return [record for _, record in records_of(load, seconds, domain=FLIGHTS, content=content)]


def written(path, *states, **fields):
    answer = {"time": START_S, "states": [list((STATE | each).values()) for each in states]}
    path.write_text(json.dumps(answer | fields))
    return path


def test_a_state_keeps_its_values_and_gets_its_cell(tmp_path):
    (record,) = made(written(tmp_path / "s.json", {}), 1, 1)
    assert record == {
        "icao24": "3c6444",
        "callsign": "DLH1    ",
        "origin_country": "Germany",
        "time_position": START_MS,
        "last_contact": (START_S + 1) * 1000,
        "longitude": 8.57,
        "latitude": 50.03,
        "baro_altitude": 900.5,
        "on_ground": False,
        "velocity": 100.25,
        "true_track": 90.0,
        "vertical_rate": -3.25,
        "geo_altitude": 950.0,
        "squawk": "7700",
        "spi": True,
        "position_source": 2,
        "departure": "ZZZZ",
        "cell": "N50E005",
        "sequence": 0,
        "run_id": "r1",
        "scheduled_at": START_MS * 1000,
    }


def test_what_no_stage_needs_may_be_missing(tmp_path):
    optional = (
        *("callsign", "origin_country", "baro_altitude", "on_ground", "true_track"),
        *("vertical_rate", "geo_altitude", "squawk", "spi", "position_source"),
    )
    path = written(tmp_path / "s.json", dict.fromkeys(optional))
    (record,) = made(path, 1, 1)
    assert {name: record[name] for name in optional} == {
        "callsign": "",
        "origin_country": "unknown",
        "baro_altitude": 0.0,
        "on_ground": False,
        "true_track": 0.0,
        "vertical_rate": 0.0,
        "geo_altitude": 0.0,
        "squawk": "",
        "spi": False,
        "position_source": 0,
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"longitude": None}, "longitude is empty"),
        ({"latitude": None}, "latitude is empty"),
        ({"latitude": 90.5}, "latitude is 90.5, which is not possible"),
        ({"icao24": None}, "icao24 is empty"),
        ({"last_contact": None}, "last_contact is empty"),
        ({"velocity": None}, "velocity is empty"),
        ({"velocity": -1}, "velocity is -1, which is not possible"),
        ({"time_position": None}, "time_position is empty"),
    ],
)
def test_a_state_that_the_stages_cannot_use_is_left_out_and_counted(tmp_path, change, reason):
    written(tmp_path / "1.json", {})
    written(tmp_path / "2.json", {}, change)
    content = {"source": "file", "path": str(tmp_path)}
    request = a_request(Replay(), domain=FLIGHTS, content=content)
    answer = looked(request, "flights")
    assert (answer["refused"], answer["bad_rows"]) == ("", 1)
    assert answer["first"] == f"2.json, line 1: state 2: {reason}"


def test_the_names_of_the_data_sets_are_known(tmp_path):
    state = {DATA_SET.get(name, name): value for name, value in STATE.items() if value is not None}
    del state["origin_country"]
    lines = [json.dumps(state | {"lastposupdate": START_S + offset}) for offset in (0, 0.5)]
    (tmp_path / "s.json").write_text("\n".join(lines))
    (tmp_path / "s.csv").write_text(
        ",".join(state) + "\n" + ",".join(str(value) for value in state.values())
    )
    expected = made(written(tmp_path / "a.json", {"origin_country": "unknown"}), 1, 1)
    for name in ("s.json", "s.csv"):
        assert made(tmp_path / name, 1, 1, time_unit="s") == expected
    with pytest.raises(InputError, match="looks like seconds"):
        made(tmp_path / "s.csv", 1, 1)
    two = made(tmp_path / "s.json", Replay(speed=1), 1, time_unit="s")
    assert [record["time_position"] - START_MS for record in two] == [0, 500]


def test_columns_and_units_are_those_of_a_file(tmp_path):
    for fields in ({"time_unit": "s"}, {"columns": {"icao24": "hex"}}):
        with pytest.raises(DefinitionError, match="applies only to a file"):
            a_plan(1, domain=FLIGHTS, content=fields)
    with pytest.raises(InputError, match="columns names 'colour'; fields are: icao24, callsign"):
        made(written(tmp_path / "s.json", {}), 1, 1, columns={"colour": "red"})


def a_recording(folder, seed):
    """Answers every ten seconds in two files, with all that OpenSky's have: states repeated until
    they have a newer position, nulls, categories, states of the past; and those states."""
    drawn = random.Random(seed)
    aircraft = [f"{drawn.randrange(2**24):06x}" for _ in range(15)]
    last = {}
    answers = []
    for second in range(START_S, START_S + 200, 10):
        states = []
        for address in drawn.sample(aircraft, 12):
            if address not in last or drawn.random() < 0.6:
                last[address] = STATE | {
                    "icao24": address,
                    "callsign": drawn.choice([None, "", "ABC12   "]),
                    "time_position": second - drawn.randrange(8),
                    "last_contact": second,
                    "longitude": round(drawn.uniform(-180, 180), 4),
                    "latitude": round(drawn.uniform(-90, 90), 4),
                    "baro_altitude": drawn.choice([None, 1000, 1000.5]),
                    "on_ground": drawn.random() < 0.2,
                    "velocity": drawn.choice([None, 0, 12.5, 250]),
                    "geo_altitude": drawn.choice([None, -12.5]),
                    "squawk": drawn.choice([None, "7700", "0012"]),
                }
                if drawn.random() < 0.1:
                    last[address] |= dict.fromkeys(("time_position", "longitude", "latitude"))
            states.append(list(last[address].values()) + [1] * (drawn.random() < 0.5))
        answers.append({"time": second, "states": states, "new": {"field": [1]}})
    answers.insert(3, {"time": START_S, "states": None})
    lines = [json.dumps(each) for each in answers]
    (folder / "2.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[:9]).encode()))
    (folder / "1.json").write_text("[" + ",\n".join(lines[9:]) + "]")
    return [state for each in answers[9:] + answers[:9] for state in each["states"] or ()]


def expected_replay(states, speed, seconds):
    """The identity, time after the start in milliseconds, cell and values of each state that a
    replay sends, counted."""
    usable = [each for each in states if None not in (each[3], each[5], each[6], each[9])]
    first, last = min(each[3] for each in usable), max(each[3] for each in usable)
    times = sorted({each[3] for each in usable})
    steps = sorted(after - before for before, after in pairwise(times))
    middle = (steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
    period_s = last - first + middle
    result = Counter()
    for turn in range(math.ceil(seconds * speed / period_s) + 1):
        for state in usable:
            elapsed_ms = (turn * period_s + state[3] - first) * 1000 // speed
            if elapsed_ms >= seconds * 1000:
                continue
            south, west = math.floor(state[6] / 5) * 5, math.floor(state[5] / 5) * 5
            cell = f"{'NS'[south < 0]}{abs(south):02d}{'EW'[west < 0]}{abs(west):03d}"
            numbers = (float(state[place] or 0) for place in (7, 9, 13))
            identity = (state[0], elapsed_ms, cell, state[1] or "", state[5], state[6])
            result[*identity, *numbers, state[8], state[14] or ""] += 1
    return result


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_sends_what_the_files_have_at_their_times(tmp_path, seed):
    states = a_recording(tmp_path, seed)
    expected = expected_replay(states, speed=20, seconds=25)
    records = made(tmp_path, Replay(speed=20), 25)
    columns = (
        *("cell", "callsign", "longitude", "latitude", "baro_altitude", "velocity"),
        *("geo_altitude", "on_ground", "squawk"),
    )
    sent = Counter(
        (each["icao24"], each["time_position"] - START_MS, *(each[name] for name in columns))
        for each in records
    )
    assert sent == expected
    assert max(expected.values()) > 1  # repeated states are records of their own
    assert [each["sequence"] for each in records] == list(range(len(records)))
    times = [each["time_position"] for each in records]
    assert times == sorted(times)
    left_out = [each for each in states if None in (each[3], each[5], each[6], each[9])]
    content = {"source": "file", "path": str(tmp_path)}
    plan = a_plan(Replay(speed=20), domain=FLIGHTS, content=content)
    assert len(plan.records.bad_rows) == len(left_out) > 0
    assert {row.topic for row in plan.records.bad_rows} <= {
        str(tmp_path / name) for name in ("1.json", "2.jsonl.gz")
    }
