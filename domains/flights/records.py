"""The records of a load: recorded states (recording.py), or aircraft states from a flight model
whose parameters are drawn from the seed.

An aircraft flies back and forth between two airports along the great circle at its own velocity. It
climbs at 10 m/s to its flight level, leaves it in time to descend at 8 m/s, and stays on the ground
for half an hour. Its position at the start of the load is drawn. Everything is a pure function of
aircraft and time, so `time_factor` makes days of flights pass in minutes.

A turn is one state; the aircraft report in turn.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.fault_rules import fractions
from schemas.records import (
    EVENT_MS,
    KEY,
    Int64s,
    NameTable,
    Part,
    RecordedTimes,
    Setup,
    Values,
    probe_time_ms,
)
from services.definitions.replayed_rows import RecordedRecords
from services.runtime.events import DeadLetter

from .content import UNLISTED, Content
from .recording import Floats, cell_name, cells, recorded_states

EARTH_M = 6_371_000.0
CLIMB_M_S, DESCENT_M_S = 10.0, 8.0
MIN_LEVEL_M, MAX_LEVEL_M = 6_000.0, 12_500.0
MIN_M_S, MAX_M_S = 180.0, 260.0
GROUND_S = 1_800.0
EMERGENCY = 0o7700
CODES = 0o10000
ADDRESSES = 2**24
AIRLINES = ("TID", "GAU", "BLU", "NRD", "SKY", "ALP", "ORI", "VEL")
# Streams of random numbers derived from the seed, one per drawn value: any odd 64-bit numbers.
FROM, TO, PHASE, VELOCITY, LEVEL, CODE, EMERGENCIES, LISTED, CONTACT = (
    0x9E6C63D0876A9A47,
    0xC5B5A1C2D4E2F0B1,
    0xA24BAED4963EE407,
    0x8CB92BA72F3D8DD7,
    0xE7037ED1A0B428DB,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
    0x589965CC75374CC3,
    0x1D8E4E27C47D124F,
)


class Airports:
    """The airports of a region, in the order of the file. vectors: of length 1, shape (n, 3)."""

    def __init__(self, path: Path, region: str) -> None:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [each for each in csv.DictReader(file) if region in (each["region"], "world")]
        self.codes = [row["departure"] for row in rows]
        self.countries = [row["country"] for row in rows]
        self.latitudes = np.array([float(row["airport_latitude"]) for row in rows])
        self.longitudes = np.array([float(row["airport_longitude"]) for row in rows])
        self.vectors = _vectors(self.latitudes, self.longitudes)


class Records:
    """See schemas/records.py."""

    turn = ("states",)

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._states: ModelledStates | RecordedRecords = (
            recorded_states(setup) if setup.content.source == "file" else ModelledStates(setup)
        )
        self.bad_rows = self._states.bad_rows

    def recorded_times(self) -> RecordedTimes | None:
        return self._states.recorded_times()

    def keys(self, name: str) -> NameTable:
        return self._states.keys(name)

    def values(self, part: Part) -> Values:
        return self._states.values(part)

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        return self._states.columns(name, values)

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """An emergency above Frankfurt, in separate windows."""
        time_ms = probe_time_ms(self._setup.domain, number, now_ms)
        state = {
            "icao24": f"probe-{number}",
            "callsign": "PROBE",
            "origin_country": f"probe-{number}",
            "time_position": time_ms,
            "last_contact": time_ms,
            "longitude": 8.57,
            "latitude": 50.03,
            "baro_altitude": 900.0,
            "on_ground": False,
            "velocity": 100.0,
            "true_track": 0.0,
            "vertical_rate": 0.0,
            "geo_altitude": 900.0,
            "squawk": "7700",
            "spi": False,
            "position_source": 0,
            "departure": "EDDF",
            "cell": f"probe-{number}",
        }
        return [("states", state)]


class ModelledStates:
    """The states of a flight model, as Records has them."""

    def __init__(self, setup: Setup) -> None:
        assert isinstance(setup.content, Content)
        self.bad_rows: list[DeadLetter] = []
        self._setup = setup
        self._content = setup.content
        self._airports = Airports(setup.folder / "airports.csv", setup.content.region)
        self._addresses = NameTable(self._address)
        self._callsigns = NameTable(_callsign)
        self._countries = pa.array(self._airports.countries)
        self._departures = pa.array([*self._airports.codes, UNLISTED])
        self._codes = NameTable(lambda number: f"{number:04o}")
        self._cells = NameTable(cell_name)

    def recorded_times(self) -> None:
        """None."""

    def keys(self, name: str) -> NameTable:  # noqa: ARG002
        return self._addresses

    def values(self, part: Part) -> Values:
        """See Records. Numbers of names: callsign, country, departure, squawk, cell."""
        aircraft = part.sequences % self._content.aircraft
        event_ms = part.load_start_ms + part.due_us // self._content.second_ms
        elapsed_s = part.due_us / (1_000 * self._content.second_ms)
        return {KEY: aircraft, EVENT_MS: event_ms} | self._states(aircraft, elapsed_s, event_ms)

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:  # noqa: ARG002
        said = {each: values[each] for each in STATE}
        return said | {
            "callsign": self._callsigns.names(values["callsign"]),
            "origin_country": self._countries.take(pa.array(values["country"])),
            "squawk": self._codes.names(values["squawk"]),
            "departure": self._departures.take(pa.array(values["departure"])),
            "cell": self._cells.names(values["cell"]),
        }

    def _states(self, aircraft: Int64s, elapsed_s: Floats, event_ms: Int64s) -> Values:
        home, away = self._route(aircraft)
        angle = _angle(self._airports.vectors[home], self._airports.vectors[away])
        cruise = MIN_M_S + self._drawn(VELOCITY, aircraft) * (MAX_M_S - MIN_M_S)
        leg_s = angle * EARTH_M / cruise
        one_way_s = leg_s + GROUND_S
        flown_s = elapsed_s * self._content.time_factor
        flown_s += self._drawn(PHASE, aircraft) * 2 * one_way_s
        legs, since_s = np.divmod(flown_s, one_way_s)
        flight = 1_000_003 * aircraft + legs.astype(np.int64)
        is_back = legs.astype(np.int64) % 2 == 1
        start, end = np.where(is_back, away, home), np.where(is_back, home, away)
        on_ground = since_s >= leg_s
        share = np.minimum(since_s / leg_s, 1.0)
        latitude, longitude, track = self._places(start, end, angle, share)
        level_m = MIN_LEVEL_M + self._drawn(LEVEL, flight) * (MAX_LEVEL_M - MIN_LEVEL_M)
        climbed_m, left_m = CLIMB_M_S * since_s, DESCENT_M_S * np.maximum(leg_s - since_s, 0)
        altitude = np.minimum(np.minimum(climbed_m, left_m), level_m)
        rate = np.select(
            [on_ground, climbed_m <= altitude, left_m <= altitude],
            [0.0, CLIMB_M_S, -DESCENT_M_S],
            0.0,
        )
        is_emergency = self._drawn(EMERGENCIES, flight) < self._content.emergencies
        code = (self._drawn(CODE, flight) * CODES).astype(np.int64)
        # Never assign the emergency code at random.
        code = np.where(is_emergency, EMERGENCY, np.where(code == EMERGENCY, 0o2000, code))
        is_unlisted = self._drawn(LISTED, flight) < self._content.unlisted
        contact_ms = (self._drawn(CONTACT, event_ms + aircraft) * 1_000).astype(np.int64)
        zeros = np.zeros(len(aircraft), np.int64)
        return {
            "callsign": 2 * aircraft + is_back,
            "country": home,
            "last_contact": event_ms + contact_ms,
            "longitude": np.round(longitude, 4),
            "latitude": np.round(latitude, 4),
            "baro_altitude": np.round(altitude, 1),
            "on_ground": on_ground,
            "velocity": np.round(np.where(on_ground, 0.0, cruise), 2),
            "true_track": np.round(track, 2),
            "vertical_rate": rate,
            "geo_altitude": np.round(altitude * 1.02, 1),
            "squawk": code,
            "spi": zeros.astype(np.bool_),
            "position_source": zeros,
            "departure": np.where(is_unlisted, len(self._airports.codes), start),
            "cell": cells(longitude, latitude),
        }

    def _route(self, aircraft: Int64s) -> tuple[Int64s, Int64s]:
        """The two airports of each aircraft, always different."""
        count = len(self._airports.codes)
        home = (self._drawn(FROM, aircraft) * count).astype(np.int64)
        further = 1 + (self._drawn(TO, aircraft) * (count - 1)).astype(np.int64)
        return home, (home + further) % count

    def _places(
        self, start: Int64s, end: Int64s, angle: Floats, share: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Latitude, longitude and heading in degrees, at a share of the route."""
        begin, goal = self._airports.vectors[start], self._airports.vectors[end]
        before, after = np.sin((1 - share) * angle), np.sin(share * angle)
        place = (before[:, None] * begin + after[:, None] * goal) / np.sin(angle)[:, None]
        latitude = np.degrees(np.arcsin(np.clip(place[:, 2], -1, 1)))
        longitude = np.degrees(np.arctan2(place[:, 1], place[:, 0]))
        # The heading is perpendicular to the position vector, in the plane of both airports.
        ahead = goal * np.cos(share * angle)[:, None] - begin * np.cos((1 - share) * angle)[:, None]
        east = np.stack([-place[:, 1], place[:, 0], np.zeros(len(place))], axis=1)
        north = np.cross(place, east)
        eastward, northward = (ahead * east).sum(axis=1), (ahead * north).sum(axis=1)
        return latitude, longitude, np.degrees(np.arctan2(eastward, northward)) % 360

    def _address(self, number: int) -> str:
        return f"{(number * 0x9E3779 + self._setup.seed) % ADDRESSES:06x}"

    def _drawn(self, stream: int, numbers: Int64s) -> Floats:
        """A fraction for each number, from one random stream."""
        return fractions(self._setup.seed ^ stream, numbers)


STATE = (
    *("last_contact", "longitude", "latitude", "baro_altitude", "on_ground", "velocity"),
    *("true_track", "vertical_rate", "geo_altitude", "spi", "position_source"),
)


def _callsign(number: int) -> str:
    """Callsign of an aircraft on its outward (even) or return (odd) flight."""
    return f"{AIRLINES[number // 2 % len(AIRLINES)]}{number + 100}"


def _vectors(latitudes: Floats, longitudes: Floats) -> Floats:
    north, east = np.radians(latitudes), np.radians(longitudes)
    level = np.cos(north)
    return np.stack([level * np.cos(east), level * np.sin(east), np.sin(north)], axis=1)


def _angle(first: Floats, second: Floats) -> Floats:
    """Angle between vectors of length 1, radians."""
    return np.asarray(np.arccos(np.clip((first * second).sum(axis=1), -1, 1)))
