"""What the list of runs says came of each."""

import io
from typing import Any

import pytest
from rich.console import Console

from services.console.listing import show_runs

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"phase": "measure"}, "in measure"),
        ({}, "not concluded"),
        (
            {"failures": ["conductor: run R is going on"]},
            "did not take place: run R is going on",
        ),
        ({"phase": "warm_up", "failures": ["flink: no memory"]}, "in warm_up"),
        ({"concluded": 1, "invalid_reasons": ["It was late."]}, "INVALID: It was late."),
        ({"concluded": 1, "valid": 1, "clean": 1, "steady": 1}, "valid, ledger clean"),
        ({"concluded": 1, "valid": 1, "steady": 0}, "valid, ledger not clean, NOT steady"),
    ],
)
def test_a_run_says_what_came_of_it(fields: dict[str, Any], said: str) -> None:
    run = {"run_id": "r", "workload": "w", "pipelines": ["p"], "concluded": 0, "valid": 0}
    run |= {"clean": 0, "steady": None, "phase": "", "failures": [], "invalid_reasons": []}
    shown = io.StringIO()
    show_runs(Console(file=shown, width=120), [run | fields])
    assert shown.getvalue().splitlines()[3].split("  p           ")[1].strip() == said
