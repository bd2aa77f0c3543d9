"""Raw copies of values that do not decode, whose inputs explain them and nothing else
(schemas/faults.py)."""

MAX_UNDECODABLE = 1_000_000


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
        """A copy that does not decode waits for its input."""
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
