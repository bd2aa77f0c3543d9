"""Record identities as 64-bit hashes, equal in every process and on every machine. Pure.

An identity is the text at the paths of a watch and is represented by its hash. With ten million
identities remembered, one watch in 400,000 has a collision.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
MOST_BYTES = 128  # longer identities are hashed by their digest
SEPARATOR = b"\x1f"  # between the parts of an identity
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def text_of(value: Any) -> bytes | None:
    """A value of a record as identity text; None for lists, records and other values without one.

    An integer equals the same floating-point number, decimal text, or key.
    """
    kind = type(value)
    if kind is str:
        text: str = value
        return text.encode("utf-8", "surrogatepass")
    if kind is int:
        return b"%d" % value
    if kind is bytes:
        found: bytes = value
        return found
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return str(int(value) if value.is_integer() else value).encode()
    return None


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
    found = mixed(lengths.astype(np.uint64))
    for number, column in enumerate(padded.view("<u8").reshape(-1, words).T):
        found = np.where(lengths > 8 * number, mixed(found ^ column), found)
    return found


def mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed
