"""Results in the list of runs."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from services.console.listing import show_runs
from services.console.terminal import Terminal

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
    (row,) = shown_rows([a_run() | fields])
    assert re.split(" {2,}", row.strip())[3] == said


def test_a_reason_with_brackets_is_shown_as_it_is() -> None:
    reason = "no [field] x at [/127.0.0.1:9092]"
    out = io.StringIO()
    show_runs(Terminal(file=out), [a_run() | {"concluded": 1, "invalid_reasons": [reason]}], 9)
    assert f"INVALID: {reason}" in out.getvalue()


def test_of_many_runs_the_newest_are_listed_and_the_rest_is_mentioned() -> None:
    out = io.StringIO()
    show_runs(Terminal(file=out), [a_run() | {"run_id": f"run-{n}"} for n in range(3)], 2)
    assert ["run-1" in out.getvalue(), "run-2" in out.getvalue()] == [True, False]
    assert "more than 2 runs; --limit" in out.getvalue()


def test_on_a_narrow_terminal_no_id_is_cut_and_the_result_is_there() -> None:
    run_id = "watch-orders-20261124-140000-6b05984a"
    fields = {"run_id": run_id, "workload": "sustainable-throughput", "concluded": 1, "valid": 1}
    rows = shown_rows([a_run() | fields], width=80, force_terminal=True)
    assert rows[0].split()[0] == run_id
    assert "valid" in rows[0]
    assert max(map(len, rows)) <= 80


def test_a_list_that_is_piped_has_a_line_for_each_run() -> None:
    names = ["spark-realtime-via-topics" * 4]
    rows = shown_rows([a_run() | {"run_id": f"r{n}", "pipelines": names} for n in range(3)])
    assert [names[0] in row for row in rows] == [True] * 3


def a_run() -> dict[str, Any]:
    run = {"run_id": "r", "workload": "w", "pipelines": ["p"], "concluded": 0, "valid": 0}
    return run | {"clean": 0, "steady": None, "phase": "", "failures": [], "invalid_reasons": []}


def shown_rows(runs: list[dict[str, Any]], **options: Any) -> list[str]:
    shown = io.StringIO()
    show_runs(Console(file=shown, no_color=True, **options), runs, len(runs))
    return [line for line in shown.getvalue().splitlines() if line.strip()][2:]
