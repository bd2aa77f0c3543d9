"""What is published about several runs."""

from collections.abc import Callable

import pytest

from analysis.baseline import compared
from analysis.costs import COST
from analysis.repetition import summarise
from schemas.events import Conclusion, event_of
from schemas.report import Report
from services.console.choosing import cited
from services.console.report import several
from services.console.report.several import conclusions_of, with_conclusions
from services.console.report.words import interleaved_sentences
from services.readmodel.runs import StoredConclusion
from tests.unit.analysis.test_baseline import QUIET, repeated
from tests.unit.console.test_interleaved import one_of_several, report_of, told
from tests.unit.reports import report_of as partial

pytestmark = pytest.mark.unit


def published(report: Report) -> dict[str, Conclusion]:
    """The conclusions by kind, each of which a consumer accepts."""
    found = {one.kind: one for one in conclusions_of(report)}
    for one in found.values():
        assert event_of(one.TOPIC, one.record("console", 0)).detail == one.detail
    return found


def test_a_single_run_has_nothing_more_to_say() -> None:
    assert published(report_of(interleaved=None)) == {}


def test_each_figure_of_repeated_runs_is_a_row() -> None:
    report = summarise([one_of_several(number, 2) for number in range(2)])
    found = published(report)["repetition"]
    assert (found.invalid_reasons, found.detail["runs"]) == ((), ["run-0", "run-1"])
    assert found.detail["repetition"] == report.repetition.as_json()
    rows = {(one["pipeline"], one["stage"], one["figure"]): one for one in found.detail["rows"]}
    cell = report.repetition.pipelines["a"].stages["join"].latency_ms["latest"]["p50"]
    row = rows["a", "join", "p50"]
    assert (row["definition"], row["median"], row["count"]) == ("latest", cell.median, 2)
    assert (row["low"], row["high"]) == (cell.low, cell.high)
    assert rows["b", "", COST]["definition"] == ""


def test_the_rates_that_repeated_searches_found_are_a_row() -> None:
    search = {"rate_per_second": 40_000, "interval_per_second": [40_000, None]}
    searched = partial({"conclusion": {"search": search}}).conclusion
    runs = [one_of_several(number, 2) for number in range(2)]
    report = summarise([one.model_copy(update={"conclusion": searched}) for one in runs])
    (row,) = (
        one
        for one in published(report)["repetition"].detail["rows"]
        if one["figure"] == "sustainable_rate_per_second"
    )
    assert (row["pipeline"], row["median"], row["count"]) == ("a", 40_000, 2)
    assert (row["low"], row["high"], row["confidence"]) == (40_000, None, None)


def test_without_a_valid_run_a_repetition_is_not_valid() -> None:
    late = {"valid": False, "invalid_reasons": ["The generator was late."]}
    report = summarise([one_of_several(0, 2, **late)])
    assert published(report)["repetition"].invalid_reasons == ("The generator was late.",)


def test_the_decision_over_several_runs_is_of_the_second_pipeline() -> None:
    report = summarise([one_of_several(number, 2) for number in range(2)])
    detail = published(report)["interleaved"].detail
    assert (detail["against"], detail["runs"]) == ("a", ["run-0", "run-1"])
    assert detail["said"] == report.interleaved.said
    rows = {(one["stage"], one["figure"]): one for one in detail["rows"]}
    row = rows["join", "mean"]
    assert (row["pipeline"], row["verdict"]) == ("b", "worse")
    # 10 and 12 ms alternately; 2 ms more.
    assert (row["before"], row["after"], row["value"]) == pytest.approx((11, 13, 2), abs=0.1)
    assert rows["", COST]["verdict"] == "described"


@pytest.mark.parametrize(
    ("slower_ms", "steady", "verdict"),
    [(-2, True, "better"), (0, True, "same"), (2, False, "unknown")],
)
def test_a_difference_has_a_verdict(slower_ms: int, steady: bool, verdict: str) -> None:
    found = published(report_of(interleaved=told(slower_ms, steady=steady)))["interleaved"]
    (mean,) = (one for one in found.detail["rows"] if one["figure"] == "mean")
    assert (mean["verdict"], found.detail["runs"]) == (verdict, [report_of().run_id])


def test_a_comparison_with_a_baseline_has_its_verdicts() -> None:
    report = partial(repeated([ms + 10 for ms in QUIET]))
    baseline = compared(report, partial(repeated(QUIET)), "before.json")
    found = published(partial({"run_id": "run-1", "baseline": baseline}))["baseline"]
    assert (found.invalid_reasons, found.detail["against"]) == ((), "before.json")
    (row,) = (one for one in found.detail["rows"] if one["figure"] == "p50")
    assert (row["verdict"], row["value"]) == ("worse", 10)


def test_what_cannot_be_compared_with_a_baseline_is_told() -> None:
    before = partial(repeated(QUIET) | {"identity": {"workload": "another"}})
    now = partial(repeated(QUIET) | {"identity": {"workload": "one"}})
    baseline = compared(now, before, "before.json")
    found = published(partial({"run_id": "run-1", "baseline": baseline}))["baseline"]
    assert (found.detail["rows"], [*found.invalid_reasons]) == ([], baseline.left_out)
    assert found.invalid_reasons


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report], None]:
    """Stores the conclusions of a report, as the only ones."""

    def store(report: Report) -> None:
        rows = [
            StoredConclusion(
                event.kind,
                event.run_id,
                not event.invalid_reasons,
                [*event.invalid_reasons],
                event.detail,
            )
            for event in conclusions_of(report)
        ]
        monkeypatch.setattr(several.runs, "conclusions_about", lambda *_: rows)

    return store


def test_the_report_of_each_run_has_what_was_published_about_all(
    stored: Callable[[Report], None],
) -> None:
    runs = [one_of_several(number, 2) for number in range(2)]
    summary = summarise(runs)
    stored(summary)
    for run in runs:
        found = with_conclusions("", run)
        assert found.repetition == summary.repetition
        own = {"pairs": run.interleaved.pairs}
        assert found.interleaved == summary.interleaved.model_copy(update=own)
        assert found.valid
        assert interleaved_sentences(found) == interleaved_sentences(summary)


def test_the_decision_of_a_single_run_is_that_which_was_published_once_seconds_have_expired(
    stored: Callable[[Report], None],
) -> None:
    report = report_of(interleaved=told(2))
    stored(report)
    assert with_conclusions("", report) == report
    expired = with_conclusions("", report.model_copy(update={"interleaved": None}))
    assert interleaved_sentences(expired) == interleaved_sentences(report)


def test_the_decision_of_another_run_is_named_as_such(
    stored: Callable[[Report], None],
) -> None:
    late = {"valid": False, "invalid_reasons": ["The generator was late."]}
    runs = [one_of_several(0, 2), one_of_several(1, 2, **late)]
    assert summarise(runs).interleaved.runs == ["run-0"]
    assert "blocks of 6 s of run-0, compared" in interleaved_sentences(summarise(runs))[1]


def test_a_run_that_stands_for_runs_that_may_not_be_cited_is_not_valid(
    stored: Callable[[Report], None],
) -> None:
    runs = [one_of_several(number, 2) for number in range(2)]
    stored(cited(summarise(runs), runs))
    median, other = (with_conclusions("", run) for run in runs)
    assert (median.valid, other.valid) == (False, True)
    assert median.invalid_reasons[0].startswith("Not to be cited: 2 of 2 runs")
