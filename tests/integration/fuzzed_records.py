"""Invalid and extreme records: garbage, and Avro that decodes to extreme values.

`Fuzzer(seed).values(topic)` yields values for a topic endlessly; the same seed gives the same
values. They are encoded here, because the codec refuses to write most of them.
"""

import json
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

from schemas import catalogue, codec
from schemas.commands import COMMANDS
from schemas.events import (
    Concluded,
    Drained,
    Evaluating,
    Failed,
    LoadFinished,
    PartDown,
    PhaseStarted,
    Ready,
    RunRequested,
    ServiceStarted,
)
from tests.traffic import RELEASED, RELEASED_NAMES

NOW_MS = int(time.time() * 1000)
INTS = (0, 1, -1, 2**31 - 1, -(2**31))
LONG_INTS = (2**31, -(2**31) - 1, 2**40, 2**63 - 1, -(2**63))
LONGS = (*INTS, *LONG_INTS, NOW_MS, NOW_MS * 1000)
TIMES = (0, -1, 4_102_444_799_999, 4_102_444_800_000, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 1.5, -1e308, 1.7976931348623157e308, 5e-324)
ODD_DOUBLES = (float("nan"), float("inf"), float("-inf"))
TEXTS = (
    *("", "a", "\0", "a\0b", "\n\t\\N", "'; DROP TABLE runs", "`", "%s{x:Identifier}", "\ufffe"),
    *("\U0010ffff", "\u202e\u0301", "𝔘" * 100, "x" * 1_000, "measure", "latest", "parse"),
)
NO_TEXTS = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"ab\xe2\x82")
OBJECTS = (
    *("{}", '{"a": NaN}', '{"reason": 5}', '{"reason": "\\ud800"}', '{"clean": null, "": []}'),
    *(
        '{"offset_ms": 1e999}',
        '{"largest_lag_ms": 99999999999999999999}',
        '{"a":' * 50 + "1" + "}" * 50,
    ),
    *("[]", "", "null", "{", "[" * 5_000, "1" * 5_000, '{"a": ' + "9" * 5_000 + "}"),
)
# Valid names in some records, so that the code behind them is reached.
NAMES = {
    "command": tuple(COMMANDS),
    "event": (
        Ready.name,
        Failed.name,
        Drained.name,
        Concluded.name,
        Evaluating.name,
        PartDown.name,
        PhaseStarted.name,
        RunRequested.name,
        LoadFinished.name,
        ServiceStarted.name,
    ),
    "kind": ("run", "search_step", "sustainable_throughput", "change_point"),
}


class Fuzzer:
    """Values for topics. run_ids: run ids used in some records, in addition to odd ones."""

    def __init__(self, seed: int | str, run_ids: tuple[str, ...] = ()) -> None:
        self._random = random.Random(seed)
        self._run_ids = run_ids

    def values(self, topic: catalogue.Topic) -> Iterator[bytes | None]:
        """Values for a topic, endlessly."""
        while True:
            yield self._value(topic)

    def _value(self, topic: catalogue.Topic) -> bytes | None:
        chance = self._random.random()
        name = self._random.choice(topic.records)
        if chance < 0.02:
            return None
        if chance < 0.06:
            return self._random.randbytes(self._random.randrange(60))
        if chance < 0.10:
            name = self._random.choice(RELEASED_NAMES)
        value = self._record(name)
        if chance < 0.14:
            return value[: self._random.randrange(len(value))]
        if chance < 0.18:
            return value + b"\0"
        if chance < 0.22:
            spoilt = bytearray(value)
            spoilt[self._random.randrange(len(spoilt))] ^= 1 << self._random.randrange(8)
            return bytes(spoilt)
        return value

    def _record(self, name: str) -> bytes:
        """A record with none, one or all of its fields odd."""
        avro = json.loads(RELEASED.schema_json(name))
        oddity = self._random.choice((0.0, 0.0, 0.05, 0.3))
        length = self._random.choice((1, 1, 2, 3, 50))
        return RELEASED.header(name) + b"".join(
            self._field(name, field["name"], field["type"], oddity, length)
            for field in avro["fields"]
        )

    def _field(self, record: str, field: str, kind: Any, oddity: float, length: int) -> bytes:
        odd = self._random.random() < oddity
        if field in ("time", "second") and not odd:
            return _long(NOW_MS - self._random.randrange(60_000))
        if field == "run_id" and self._run_ids and self._random.random() < 0.5:
            return _text(self._random.choice(self._run_ids))
        if field in NAMES and not odd:
            return _text(self._random.choice(NAMES[field]))
        if field == codec.JSON_FIELDS.get(record) or field == "body":
            return _text(self._random.choice(OBJECTS if odd else OBJECTS[:2]))
        if field == "counts" and not odd:
            return _array([_long(self._random.randrange(1, 100)) for _ in range(length)])
        return self._any(kind, odd, length)

    def _any(self, kind: Any, odd: bool, length: int) -> bytes:
        choose = self._random.choice
        if isinstance(kind, list):
            branch = choose(range(len(kind)))
            return _long(branch) + self._any(kind[branch], odd, length)
        if isinstance(kind, dict) and kind["type"] == "array":
            count = choose((0, 1, length + 1, 200)) if odd else length
            return _array([self._any(kind["items"], odd, length) for _ in range(count)])
        if isinstance(kind, dict) and kind["type"] == "map":
            pairs = [_text(choose(TEXTS)) + self._any(kind["values"], odd, length) for _ in "abc"]
            return _array(pairs)
        if isinstance(kind, dict):
            return _long(choose(TIMES)) if odd else _long(NOW_MS)
        return self._primitive(kind, odd)

    def _primitive(self, kind: str, odd: bool) -> bytes:
        choose = self._random.choice
        if kind == "int":
            return _long(choose((*INTS, *LONG_INTS) if odd else INTS))
        if kind == "long":
            return _long(choose(LONGS))
        if kind == "double":
            return struct.pack("<d", choose((*DOUBLES, *ODD_DOUBLES) if odd else DOUBLES))
        if kind == "boolean":
            return choose((b"\0", b"\1", b"\2" if odd else b"\1"))
        if kind == "bytes":
            return _bytes(self._random.randbytes(choose((0, 1, 100))))
        if kind == "null":
            return b""
        return _bytes(choose(NO_TEXTS)) if odd and choose((0, 0, 1)) else _text(choose(TEXTS))


def _long(value: int) -> bytes:
    """Avro's zigzag varint of a 64-bit integer."""
    left = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _array(items: list[bytes]) -> bytes:
    """One block of items, and the end marker."""
    return (_long(len(items)) + b"".join(items) if items else b"") + b"\0"
