"""Several runs, one of which fails."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from analysis.thresholds import ENDED
from schemas.protocol import VERDICTS
from schemas.report import Report
from services.console.arguments import EXIT_FAILED, EXIT_THRESHOLD
from services.console.remote_stack import run_page
from services.console.run_command import RunError
from services.console.series import Means, RunOptions, exit_code, run
from services.runtime.settings import ServiceSettings
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

ASKED = RunOptions(workload="smoke", pipeline="calibration", repeat=1)
RUN_ID = "20260101-000000-abcd"
ONE = report_of(
    {
        "run_id": RUN_ID,
        "valid": True,
        "invalid_reasons": [],
        "conclusion": {"clean": True},
        "thresholds": [],
        "pipelines": {},
    }
)


class NoStack:
    """A stack that does nothing."""

    attached = True

    def up(self, _say: Callable[[str], None], _once_leading: object) -> None: ...
    def close(self, _say: Callable[[str], None]) -> None: ...
    def check(self) -> None: ...


def of(reports: list[Report]) -> Report:
    """A summary that names its runs."""
    return report_of({"run_id": RUN_ID, "left_out": [report.run_id for report in reports]})


def refused_in_the_second(**more: Any) -> Means:
    """The first run gives a report and the second is refused."""

    def ends() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(interrupted=False)
        raise RunError("The run was refused: one is going on.")

    outcomes = ends()
    doubles: dict[str, Any] = {
        "open_stack": lambda _settings, _parts: NoStack(),
        "perform": lambda *_: next(outcomes),
        "build_report": lambda *_: ONE,
        "summarise": lambda reports, _profile: of(reports),
        "show_report": lambda *_: None,
        "make_archives": lambda *_, **__: None,
    }
    return Means(**doubles | more)


def carried_out(options: RunOptions, data: Path, means: Means) -> int:
    return run(options, ServiceSettings(data=data), Console(quiet=True), means)


def test_what_was_measured_before_a_refused_run_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = replace(ASKED, repeat=3, report=path)
    with pytest.raises(RunError, match=r"^The run was refused"):
        carried_out(options, tmp_path, refused_in_the_second())
    assert json.loads(path.read_text()) == of([ONE]).as_json()


def test_a_run_that_a_threshold_ended_ends_the_repetition(tmp_path: Path) -> None:
    failed = {"threshold": "join.p99_ms <= 5 abort", "passed": False}
    report: dict[str, Any] = {"run_id": RUN_ID, "valid": False, "thresholds": [failed]}
    report["invalid_reasons"] = ["The run was ended by a threshold that failed: x."]
    means = refused_in_the_second(build_report=lambda *_: report_of(report))
    assert carried_out(replace(ASKED, repeat=3), tmp_path, means) == EXIT_THRESHOLD


def test_results_of_several_runs_are_stored_after_the_files_and_before_the_stack_stops(
    tmp_path: Path,
) -> None:
    path, done = tmp_path / "report.json", []

    class Closing(NoStack):
        def close(self, _say: object) -> None:
            done.append("closed")

    def publish(found: list[str], *_: object) -> None:
        assert json.loads(path.read_text()) == ONE.as_json()
        done.append("published")

    means = refused_in_the_second(
        open_stack=lambda _settings, _parts: Closing(),
        publish=publish,
    )
    assert carried_out(replace(ASKED, report=path), tmp_path, means) == 0
    assert done == ["published", "closed"]


def test_a_stack_that_goes_on_shows_the_run_on_a_page_of_its_own() -> None:
    address = run_page(ServiceSettings(), "20260101-000000-abcd")
    page, _, until_ms = address.partition("&to=")
    assert page == (
        "http://127.0.0.1:17072/dashboards/d/tidegauge-run"
        "?var-run=20260101-000000-abcd&from=1767225600000"
    )
    assert int(until_ms) > 1_767_225_600_000


class StartsLater(NoStack):
    """A stack on which a run can begin before it is ready."""

    def up(self, _say: object, once_leading: Callable[[], None] | None) -> None:
        if once_leading is not None:
            once_leading()


@pytest.mark.parametrize(
    ("workload", "begun_early"), [("smoke", [True, False]), ("at-90-percent", [False, False])]
)
def test_the_first_run_begins_before_the_stack_is_ready_where_it_needs_no_results(
    tmp_path: Path, workload: str, begun_early: list[bool]
) -> None:
    asked: list[object] = []

    def perform(*arguments: object) -> SimpleNamespace:
        asked.append(arguments[4])
        return SimpleNamespace(interrupted=False)

    invalid = report_of(
        {"run_id": RUN_ID, "thresholds": [], "valid": False, "invalid_reasons": ["x"]}
    )
    means = refused_in_the_second(
        open_stack=lambda _settings, _parts: StartsLater(),
        ask=lambda request, _settings: request,
        perform=perform,
        at_share=lambda request, _url: request,
        build_report=lambda *_: invalid,
    )
    carried_out(replace(ASKED, workload=workload, repeat=2), tmp_path, means)
    assert [one is not None for one in asked] == begun_early


def code_of(report: dict[str, Any]) -> int:
    return exit_code([report_of(report)], report_of({}))


def test_a_run_that_a_threshold_ended_is_exit_code_3_if_its_last_outputs_pass_it() -> None:
    row = {"threshold": "join.p99_ms <= 50 abort", "passed": True}
    ended = {"thresholds": [row], "valid": False, "conclusion": {"clean": True}, "pipelines": {}}
    reasons = [f"{ENDED} that join.p99_ms <= 50 failed."]
    assert code_of(ended | {"invalid_reasons": reasons}) == EXIT_THRESHOLD


def test_a_duplicate_after_the_conclusion_is_exit_code_1() -> None:
    verdicts = dict.fromkeys(VERDICTS, 0) | {"exact": 9, "duplicate": 1}
    cell = {"stages": {"join": {"verdicts": verdicts}}}
    report = {"valid": True, "conclusion": {"clean": True}, "thresholds": [], "invalid_reasons": []}
    assert code_of(report | {"pipelines": {"p": cell}}) == EXIT_FAILED


@pytest.mark.parametrize(
    ("valid", "passed", "code"),
    [(True, False, EXIT_THRESHOLD), (True, True, 0), (False, False, EXIT_FAILED)],
)
def test_a_rate_below_its_threshold_is_exit_code_3_of_a_valid_run(
    valid: bool, passed: bool, code: int
) -> None:
    row = {"threshold": "pipeline.sustainable_rate_per_second >= 50000", "passed": passed}
    report = {"thresholds": [row], "valid": valid, "conclusion": {"clean": True}, "pipelines": {}}
    reasons = [] if valid else ["No rate was sustained."]
    assert code_of(report | {"invalid_reasons": reasons}) == code
