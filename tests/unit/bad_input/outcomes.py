"""What became of all the bad input, counted, so that a run shows that both ways were taken.

The examples are the same in every run, so that nobody's change fails by another's bad luck;
FUZZ_EXAMPLES=5000 looks further, with new ones every time.
"""

import os
from collections import Counter

from hypothesis import settings

FURTHER = os.environ.get("FUZZ_EXAMPLES")
fuzzed = settings(max_examples=int(FURTHER or 150), deadline=None, derandomize=FURTHER is None)
COUNTS: Counter[tuple[str, str]] = Counter()


def count(target: str, outcome: str) -> None:
    """One input of a target had this outcome."""
    COUNTS[target, outcome] += 1


def lines() -> list[str]:
    """One line for each target: its outcomes with their counts."""
    targets = sorted({target for target, _outcome in COUNTS})
    return [
        f"{target}: "
        + ", ".join(f"{n} {what}" for (of, what), n in sorted(COUNTS.items()) if of == target)
        for target in targets
    ]
