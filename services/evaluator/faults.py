"""Faults that the load has on purpose (schemas/faults.py), as the evaluator has to know them.

- A record that is sent twice explains two raw copies and two parses of it, or one: which of the
  two a pipeline passes on is its own affair. A third is a duplicate.
- A value that does not decode explains its raw copies, and nothing else.
- A late record and an impossible value are data: what they imply follows from the inputs.
"""

import numpy as np

from schemas import faults
from schemas.faults import Faults
from services.evaluator.columns import Bools, Ints
from services.evaluator.inputs import BLOCK

MAX_UNDECODABLE = 1_000_000


class Repeats:
    """Which outputs of a sequence are explained although they are not its first."""

    def __init__(self, rule: Faults, seed: int) -> None:
        self._rule = rule
        self._seed = seed

    def unexplained(self, group: int, index: Ints, before: Ints, again: Ints) -> Bools:
        """For each of the rows `again`: whether it is one too many.

        group, index: addresses of all rows, in order; before: outputs of each address that came
        before these rows.
        """
        kinds = faults.kinds(self._rule, self._seed, group * BLOCK + index[again])
        sent_twice = kinds == faults.DUPLICATE
        if not sent_twice.any():
            return np.ones(len(again), bool)
        number: dict[int, int] = {}
        count = dict(zip(index.tolist(), before.tolist(), strict=True))
        for row, address in enumerate(index.tolist()):
            count[address] += 1
            number[row] = count[address]
        second = np.array([number[row] == 2 for row in again.tolist()])
        unexplained: Bools = ~(sent_twice & second)
        return unexplained


class RawCopies:
    """Raw copies of values that do not decode, until the inputs they copy are known.

    Keeps 8 bytes of hash for each undecodable input, the newest 1,000,000.
    """

    def __init__(self) -> None:
        self._inputs: dict[int, int] = {}  # LogAppendTime of the first of each
        self._waiting: list[tuple[str, int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add_input(self, value: bytes | None, appended_ms: int) -> None:
        """Remember an input that does not decode."""
        known = self._inputs.setdefault(hash(value), appended_ms)
        self._inputs[hash(value)] = min(known, appended_ms)
        if len(self._inputs) > MAX_UNDECODABLE:
            del self._inputs[next(iter(self._inputs))]

    def add_output(self, topic: str, value: bytes | None, appended_ms: int) -> None:
        """An output of stage ingest that does not decode waits for its input."""
        self._waiting.append((topic, hash(value), appended_ms))

    def unexpected(self, frontier_ms: int, deadline_ms: int) -> list[tuple[str, int]]:
        """Topic and LogAppendTime of outputs that no input appended up to the deadline after them
        explains; all inputs appended before the frontier are known."""
        limit_ms = frontier_ms - deadline_ms
        open_ones = [
            (topic, value, at_ms)
            for topic, value, at_ms in self._waiting
            if value not in self._inputs or self._inputs[value] > at_ms + deadline_ms
        ]
        self._waiting = [one for one in open_ones if one[2] >= limit_ms]
        return [(topic, at_ms) for topic, _value, at_ms in open_ones if at_ms < limit_ms]
