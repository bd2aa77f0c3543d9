"""How many examples the slow property tests use. All profiles but `explore` use the same each time,
so that more of them find nothing new."""

import os


def examples(most: int) -> int:
    """A quarter; all with HYPOTHESIS_PROFILE=explore."""
    return most if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else most // 4
