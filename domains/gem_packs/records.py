"""The records of a load: purchases of gem packs and ads for them, recorded or drawn from the seed.

A recorded purchase or ad without a user, a gem pack or a price cannot be used: the stages compute
with them. A geo that is missing is `unknown`.

A turn of drawn records is a pair: a purchase and an ad. The event time of both is the time at which
the load shape schedules the purchase, in milliseconds, scaled by `second_ms`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from services.definitions.recordings import FieldSpec
from services.definitions.replayed_rows import RecordedRecords, recorded
from services.runtime.events import DeadLetter

from .content import Content

PAIR = 2
MIN_CENTS, MAX_CENTS = 100, 20_000
SPREAD = 0.15
# Streams of random numbers derived from the seed, one per drawn value: any odd 64-bit numbers.
USER, PACK, GEO, MATCH, PRICE = (
    0x9E6C63D0876A9A47,
    0xC5B5A1C2D4E2F0B1,
    0xA24BAED4963EE407,
    0x8CB92BA72F3D8DD7,
    0xE7037ED1A0B428DB,
)


_FIELDS = (
    FieldSpec("user_id", "text"),
    FieldSpec("gem_pack_id", "text"),
    FieldSpec("price", "number", None, 0),
    FieldSpec("geo", "text", "unknown"),
    FieldSpec("time", "time"),
)


class Records:
    """See schemas/records.py."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._sales: DrawnSales | RecordedRecords = (
            recorded(setup, {}, _FIELDS) if setup.content.source == "file" else DrawnSales(setup)
        )
        self.turn, self.bad_rows = self._sales.turn, self._sales.bad_rows

    def recorded_times(self) -> RecordedTimes | None:
        return self._sales.recorded_times()

    def keys(self, name: str) -> NameTable:
        return self._sales.keys(name)

    def values(self, part: Part) -> Values:
        return self._sales.values(part)

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        return self._sales.columns(name, values)

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """A purchase above 100 euros and the ad that it matches, in separate windows."""
        record = {
            "user_id": f"probe-{number}",
            "gem_pack_id": f"probe-{number}",
            "geo": "g000",
            "time": probe_time_ms(self._setup.domain, number, now_ms),
        }
        return [("purchases", record | {"price": 120.0}), ("ads", record | {"price": 150.0})]


class DrawnSales:
    """Purchases and ads from the seed, as Records has them."""

    turn = ("purchases", "ads")

    def __init__(self, setup: Setup) -> None:
        assert isinstance(setup.content, Content)
        self.bad_rows: list[DeadLetter] = []
        self._setup = setup
        self._content = setup.content
        self._until = summed_weights(setup.content)
        self._users = NameTable(lambda number: f"user-{number}")
        self._packs = NameTable(lambda number: f"pack-{number}")
        self._geos = NameTable(lambda number: f"g{number:03d}")

    def recorded_times(self) -> None:
        """None."""

    def keys(self, name: str) -> NameTable:  # noqa: ARG002
        return self._packs

    def values(self, part: Part) -> Values:
        """See Records. user, geo: numbers of names."""
        pairs, places = np.divmod(part.sequences, PAIR)
        # A matched ad has the values drawn for the purchase of its pair.
        matches = self._drawn(MATCH, pairs) < self._content.match
        drawn_for = np.where(matches, pairs * PAIR, part.sequences)
        users = (self._drawn(USER, drawn_for) * self._content.users).astype(np.int64)
        purchases_us = part.scheduled_us(part.sequences - places)
        return {
            KEY: self._until.searchsorted(self._drawn(PACK, drawn_for), side="right"),
            EVENT_MS: part.load_start_ms + purchases_us // self._content.second_ms,
            "user": users,
            "geo": (self._drawn(GEO, users) * self._content.geos).astype(np.int64),
            "price": self._prices(part.sequences),
        }

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:  # noqa: ARG002
        return {
            "user_id": self._users.names(values["user"]),
            "price": values["price"],
            "geo": self._geos.names(values["geo"]),
        }

    def _prices(self, sequences: Int64s) -> NDArray[np.float64]:
        cents = self._drawn(PRICE, sequences) * (MAX_CENTS - MIN_CENTS + 1)
        return np.asarray((MIN_CENTS + np.floor(cents)) / 100)

    def _drawn(self, stream: int, numbers: Int64s) -> NDArray[np.float64]:
        """A fraction for each number, from one random stream."""
        return fractions(self._setup.seed ^ stream, numbers)


def summed_weights(content: Content) -> NDArray[np.float64]:
    """For each gem pack, the cumulative share of draws up to and including it."""
    numbers = np.arange(1, content.packs + 1, dtype=np.float64)
    weights = np.ones(1 if content.distribution == "single" else content.packs)
    if content.distribution == "zipf":
        weights = 1 / numbers
    elif content.distribution == "normal":
        away = (numbers - (content.packs + 1) / 2) / (SPREAD * content.packs)
        weights = np.exp(-0.5 * away**2)
    summed = np.cumsum(weights)
    until: NDArray[np.float64] = summed / summed[-1]
    return until
