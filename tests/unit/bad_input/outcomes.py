"""Counts the outcomes of all bad input, so that a run shows that every outcome occurred.

The examples are the same in every run, so that a change never fails by chance. FUZZ_EXAMPLES=5000
tests more, with new examples every time.
"""

import os
from collections import Counter

from hypothesis import settings

FURTHER = os.environ.get("FUZZ_EXAMPLES")
fuzzed = settings(max_examples=int(FURTHER or 150), deadline=None, derandomize=FURTHER is None)
COUNTS: Counter[tuple[str, str]] = Counter()


def count(target: str, outcome: str) -> None:
    """Count one outcome of a target."""
    COUNTS[target, outcome] += 1


def lines() -> list[str]:
    """One line for each target: its outcomes with their counts."""
    targets = sorted({target for target, _outcome in COUNTS})
    return [
        f"{target}: "
        + ", ".join(f"{n} {what}" for (of, what), n in sorted(COUNTS.items()) if of == target)
        for target in targets
    ]
