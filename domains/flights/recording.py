"""Recorded states, with the columns of the OpenSky Network: those of its REST API, whose names
are the domain's, and those of its data sets ("State Vectors").

A state without a position, its time, an address, a contact or a velocity cannot be used: the stages
compute with them. Another number that is missing is 0, a text empty, a flag false; the country is
then `unknown` and the airport of departure none. OpenSky repeats a state until it has a newer
position; each repetition is a record, as it was recorded.
"""

import numpy as np
from numpy.typing import NDArray

from schemas.records import Int64s, Setup
from services.definitions.recordings import FieldSpec
from services.definitions.replayed_rows import RecordedRecords, Rows, recorded

from .content import UNLISTED

Floats = NDArray[np.float64]
CELL_DEGREES = 5
CELLS_EAST = 360 // CELL_DEGREES
_FIELDS = (
    FieldSpec("icao24", "text"),
    FieldSpec("callsign", "text", ""),
    FieldSpec("origin_country", "text", "unknown"),
    FieldSpec("time_position", "time", other_names=("lastposupdate",)),
    FieldSpec("last_contact", "time", other_names=("lastcontact",)),
    FieldSpec("longitude", "number", None, -180, 180, ("lon",)),
    FieldSpec("latitude", "number", None, -90, 90, ("lat",)),
    FieldSpec("baro_altitude", "number", 0.0, other_names=("baroaltitude",)),
    FieldSpec("on_ground", "flag", False, other_names=("onground",)),
    FieldSpec("velocity", "number", None, 0),
    FieldSpec("true_track", "number", 0.0, other_names=("heading",)),
    FieldSpec("vertical_rate", "number", 0.0, other_names=("vertrate",)),
    FieldSpec("geo_altitude", "number", 0.0, other_names=("geoaltitude",)),
    FieldSpec("squawk", "text", ""),
    FieldSpec("spi", "flag", False),
    FieldSpec("position_source", "whole", 0, 0, 2**31 - 1),
    FieldSpec("departure", "text", UNLISTED),
)


def recorded_states(setup: Setup) -> RecordedRecords:
    """The states of the recording that a content names. Raises InputError."""
    return recorded(setup, {}, _FIELDS, _add_cells)


def _add_cells(rows: Rows) -> None:
    places = cells(
        np.array([row["longitude"] for row in rows], np.float64),
        np.array([row["latitude"] for row in rows], np.float64),
    )
    for row, place in zip(rows, places.tolist(), strict=True):
        row["cell"] = cell_name(place)


def cells(longitude: Floats, latitude: Floats) -> Int64s:
    """The number of the cell of each position; degrees."""
    north = np.floor((latitude + 90) / CELL_DEGREES).astype(np.int64)
    east = np.floor((longitude + 180) / CELL_DEGREES).astype(np.int64)
    return np.asarray(north * CELLS_EAST + east % CELLS_EAST)


def cell_name(number: int) -> str:
    """`N50E005`: the south-west corner of a cell."""
    north = number // CELLS_EAST * CELL_DEGREES - 90
    east = number % CELLS_EAST * CELL_DEGREES - 180
    return f"{'S' if north < 0 else 'N'}{abs(north):02d}{'W' if east < 0 else 'E'}{abs(east):03d}"
