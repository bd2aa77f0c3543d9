"""Records of watched topics and verdicts, as columns. Pure.

An identity is the text at the paths of a watch and is represented by a hash of 64 bits, equal in
every process and on every machine. With ten million
identities remembered, one watch in 400,000 has a collision.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from services.runtime.counting import Ints

Hashes = npt.NDArray[np.uint64]
MOST_DIGITS: Final = 400  # before or after the point of a number
MOST_BYTES = 128  # longer identities are hashed by their digest
SEPARATOR = b"\x1f"  # between the parts of an identity
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
Codes = npt.NDArray[np.int32]
EXACT: Final = 0
LATE: Final = 1
DUPLICATE: Final = 2
UNEXPECTED: Final = 3
LOST: Final = 4  # now missing
FOUND: Final = 5  # no longer missing
NONE_MS: Final = -(1 << 62)


def text_of(value: Any) -> bytes | None:
    """A value of a record as identity text; None for lists, records and other values without one.

    A number is its shortest decimal text: an integer equals the same floating-point number,
    decimal, text, or key.
    """
    kind = type(value)
    if kind is str:
        text: str = value
        return text.encode("utf-8", "surrogatepass")
    if kind is bytes:
        result: bytes = value
        return result
    if kind is bool:
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float | Decimal):
        return _decimal_text(value if isinstance(value, Decimal) else Decimal(repr(value)))
    return None


def _decimal_text(value: Decimal) -> bytes | None:
    """Without exponent and without zeros at its end."""
    if not value.is_finite() or abs(value.adjusted()) > MOST_DIGITS:
        return None
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text == "-0" else text.encode()


def hashes(values: Sequence[bytes]) -> Hashes:
    """The hash of each value."""
    if not len(values):
        return np.empty(0, np.uint64)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    if lengths.max() > MOST_BYTES:
        short = [v if len(v) <= MOST_BYTES else hashlib.blake2b(v).digest() for v in values]
        return hashes(short)
    words = max(1, -(-int(lengths.max()) // 8))
    padded = np.array(values, f"S{8 * words}")
    result = mixed(lengths.astype(np.uint64))
    for number, column in enumerate(padded.view("<u8").reshape(-1, words).T):
        result = np.where(lengths > 8 * number, mixed(result ^ column), result)
    return result


def mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


@dataclass(frozen=True)
class RecordColumns:
    """Records of one side as columns: hash of the identity, time, partition code and offset, code
    of the field that latency is split by; start and end in microseconds: the window of an output,
    for inputs of windows both the event time, otherwise 0; when consumers of committed records
    could have an output, NONE_MS if it is not of a transaction's partition, and for inputs."""

    hash: Hashes
    time_ms: Ints
    place: Codes
    offset: Ints
    by: Codes
    start_us: Ints
    end_us: Ints
    visible_ms: Ints

    def __len__(self) -> int:
        return len(self.hash)

    def take(self, rows: Any) -> "RecordColumns":
        """Select rows."""
        return RecordColumns(*(getattr(self, each.name)[rows] for each in COLUMNS))

    def in_order(self) -> "RecordColumns":
        """Sorted by time, stably."""
        return self.take(np.argsort(self.time_ms, kind="stable"))


COLUMNS: Final = fields(RecordColumns)


def no_records() -> RecordColumns:
    """No records."""
    ints, codes = np.empty(0, np.int64), np.empty(0, np.int32)
    return RecordColumns(np.empty(0, np.uint64), ints, codes, ints, codes, ints, ints, ints)


def saved_records(records: RecordColumns, name: str) -> dict[str, npt.NDArray[Any]]:
    """The columns for `restored_records`."""
    return {f"{name}_{each.name}": getattr(records, each.name) for each in COLUMNS}


def restored_records(saved: Mapping[str, npt.NDArray[Any]], name: str) -> RecordColumns:
    """Records saved by `saved_records`. Releases up to 0.1.0 save no `visible_ms`."""
    unknown = np.full(len(saved[f"{name}_hash"]), NONE_MS, np.int64)
    columns = {f"{name}_visible_ms": unknown, **saved}
    return RecordColumns(*(columns[f"{name}_{each.name}"] for each in COLUMNS))


def joined(parts: list[RecordColumns]) -> RecordColumns:
    """Concatenated records."""
    if len(parts) == 1:
        return parts[0]
    return RecordColumns(
        *(np.concatenate([getattr(part, each.name) for part in parts]) for each in COLUMNS)
    )


@dataclass(frozen=True)
class VerdictColumns:
    """Verdicts as columns. hash: of the identity; input_ms, output_ms: times of the group and of
    the output, NONE_MS if absent; place, offset: of the output, or else of the input; by: of the
    output or the input; end_us: end of the window of an output, or 0; visible_ms: of the output,
    or NONE_MS."""

    verdict: npt.NDArray[np.uint8]
    hash: Hashes
    input_ms: Ints
    output_ms: Ints
    place: Codes
    offset: Ints
    by: Codes
    end_us: Ints
    visible_ms: Ints

    def __len__(self) -> int:
        return len(self.verdict)

    @property
    def about_ms(self) -> Ints:
        """The time of each verdict: of the input, or else of the output."""
        return np.where(self.input_ms == NONE_MS, self.output_ms, self.input_ms)

    def take(self, rows: Any) -> "VerdictColumns":
        """Select rows."""
        return VerdictColumns(*(getattr(self, each.name)[rows] for each in fields(self)))


def of_outputs(
    verdict: npt.NDArray[np.uint8], outputs: RecordColumns, input_ms: Ints
) -> VerdictColumns:
    """Verdicts on outputs."""
    return VerdictColumns(
        verdict,
        outputs.hash,
        input_ms,
        outputs.time_ms,
        outputs.place,
        outputs.offset,
        outputs.by,
        outputs.end_us,
        outputs.visible_ms,
    )


def together(parts: list[VerdictColumns]) -> VerdictColumns:
    """Concatenated verdicts."""
    return VerdictColumns(
        *(
            np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(VerdictColumns)
        )
    )
