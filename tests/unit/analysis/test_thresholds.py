"""Thresholds for the figures of a run."""

from typing import Any

import pytest

from analysis.thresholds import judged, judged_early, judged_search, resolved, sentence
from schemas.report import Figures
from schemas.threshold import Threshold, parse_threshold

pytestmark = pytest.mark.unit


def cell(p99: int, late: int = 0) -> dict[str, Any]:
    verdicts = {"exact": 90, "wrong": 1, "missing": 0, "late": late, "duplicate": 0}
    return {
        "verdicts": verdicts | {"unexpected": 0},
        "outputs": 91,
        "records_per_second": 30.5,
        "latency_ms": {"latest": {"p99": p99}, "event_time": {"p99": 900}},
    }


def figures(rate: float | None = None, **pipelines: dict[str, Any]) -> Figures:
    """rate: found by a search."""
    used = {"cpu_cores": 0.8, "memory_bytes_max": 250_000_000}
    found = {
        "input": {"records": 9_000, "records_per_second": 400.0, "send_delay_ms": {"p99": 0.5}},
        "sustainable_rate": rate,
        "pipelines": {
            name: {"stages": stages, "resources": used, "lag_records": LAGS.get(name)}
            for name, stages in pipelines.items()
        },
    }
    return Figures.model_validate(found)


LAGS = {"a": None, "b": {"max": 70, "end": 3}}
FIGURES = figures(a={"parse": cell(4), "join": cell(40)}, b={"join": cell(60, late=2)})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("join.p99_ms <= 50", [("a", "join", 40, True), ("b", "join", 60, False)]),
        ("b: join.p99_ms <= 60", [("b", "join", 60, True)]),
        ("a: *.p99_ms < 40", [("a", "parse", 4, True), ("a", "join", 40, False)]),
        ("parse.event_time.p99_ms > 899.5", [("a", "parse", 900, True)]),
        ("join.late == 0", [("a", "join", 0, True), ("b", "join", 2, False)]),
        ("b: join.not_exact != 2", [("b", "join", 3, True)]),
        ("a: join.records_per_second >= 30", [("a", "join", 30.5, True)]),
        ("a: pipeline.memory_mb < 250", [("a", "", 250.0, False)]),
        ("a: pipeline.cpu_cores <= 1", [("a", "", 0.8, True)]),
        ("b: pipeline.lag_records <= 60", [("b", "", 70, False)]),
        ("input.records_per_second >= 400", [("", "", 400.0, True)]),
        ("input.send_delay_p99_ms <= 0.4", [("", "", 0.5, False)]),
        # A missing figure fails its threshold.
        ("sliding.p99_ms <= 1000", [("", "sliding", None, False)]),
        ("a: pipeline.lag_records <= 1000", [("a", "", None, False)]),
        ("c: join.p99_ms <= 1000", [("c", "join", None, False)]),
        ("join.p99_ms <= 2 * baseline", [("", "join", None, False)]),
    ],
)
def test_a_threshold_is_judged_of_everything_that_it_is_about(
    line: str, expected: list[tuple[str, str, float | None, bool]]
) -> None:
    rows = judged([parse_threshold(line)], FIGURES)
    assert [(r.pipeline, r.stage, r.value, r.passed) for r in rows] == expected


def test_a_row_says_in_a_sentence_what_was_asked_and_what_was() -> None:
    row = judged([parse_threshold("b: join.p99_ms <= 50 abort  # of the service level")], FIGURES)
    assert sentence(row[0]) == (
        "failed: b: join.p99_ms <= 50 abort # of the service level; b join has 60"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("join.p99 <= 50", "join has no figure 'p99'; it has: min_ms, p5_ms"),
        ("pipeline.p99_ms <= 50", "pipeline has no figure 'p99_ms'"),
        ("input.exact == 1", "input has no figure 'exact'"),
        ("join.best.p99_ms <= 50", "there is no latency 'best'"),
        ("join.mean.late == 0", "late is not a latency"),
        ("join.missing == 0 abort", "missing is known only at the end of a run"),
        ("join.wrong >= 3 abort", "wrong is known only at the end of a run"),
        ("join.late == 3 abort", "late is known only at the end of a run"),
        ("join.exact <= 3 abort", "exact is known only at the end of a run"),
        (
            "pipeline.sustainable_rate_per_second >= 5 abort",
            "sustainable_rate_per_second is known only at the end of a run",
        ),
        ("join.p99_ms = 50", "is not a threshold"),
        ("p99_ms <= 50", "is not a threshold"),
        ("join.p99_ms <=", "is not a threshold"),
        ("join.p99_ms <= 2 baseline", "is not a threshold"),
        ("join.p99_ms <= 2 *", "must be a number, or a number \\* baseline"),
        ("join.p99_ms <= nan", "is not a threshold"),
        ("join.p99_ms <= 50; DROP", "is not a threshold"),
        ("x" * 400, "at most 300 characters"),
    ],
)
def test_what_is_no_threshold_is_refused_with_the_reason(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_threshold(line)


def limits(found: tuple[Threshold, ...]) -> list[tuple[str, str, float, bool]]:
    return [(one.pipeline, one.subject, one.value, one.abort) for one in found]


BOTH = {"a": ("join", "parse"), "b": ("join", "parse")}


def test_a_baseline_gives_each_pipeline_and_stage_its_own_limit() -> None:
    given = [parse_threshold(line) for line in ("join.p99_ms <= 1.1 * baseline abort",
                                                "join.late == 0")]  # fmt: skip
    found = resolved(given, FIGURES, "before.json", BOTH)
    assert limits(found) == [
        ("a", "join", 44, True),
        ("b", "join", 66, True),
        ("", "join", 0, False),
    ]
    assert found[0].text == ("a: join.p99_ms <= 44 abort # 1.1 * baseline (40 in before.json)")
    assert parse_threshold(found[0].text) == found[0]


def test_a_baseline_of_one_pipeline_serves_for_another() -> None:
    before = figures(old={"join": cell(40)})
    found = resolved([parse_threshold("*.p99_ms <= baseline")], before, "x", {"new": ("join",)})
    assert limits(found) == [("new", "join", 40, False)]


def test_what_only_the_baseline_measured_has_no_limit() -> None:
    before = figures(a={"join": cell(40), "parse": cell(20)}, b={"join": cell(60)})
    given = [parse_threshold("*.p99_ms <= baseline")]
    assert limits(resolved(given, before, "x", {"a": ("parse",)})) == [("a", "parse", 20, False)]
    with pytest.raises(ValueError, match="x has no figure"):
        resolved(given, before, "x", {"c": ("join",), "d": ("join",)})


def test_what_the_baseline_did_not_measure_fails() -> None:
    before = figures(a={"join": cell(40)}, b={"join": cell(60)})
    (given,) = [parse_threshold("*.p99_ms <= 2 * baseline abort")]
    measured = {"a": ("join", "parse"), "c": ("join",)}
    first, *others = resolved([given], before, "x", measured)
    assert limits((first,)) == [("a", "join", 80, True)]
    assert [each.text for each in others] == [
        "a: parse.p99_ms <= 2 * baseline abort  # x has no such figure of a parse",
        "c: join.p99_ms <= 2 * baseline abort  # x has no such figure of c join",
    ]
    assert [parse_threshold(each.text).of_baseline for each in others] == [True, True]
    now = figures(a={"join": cell(40), "parse": cell(1)}, c={"join": cell(1)})
    rows = judged([parse_threshold(each.text) for each in (first, *others)], now)
    assert [row.passed for row in rows] == [True, False, False]


def test_a_run_that_a_threshold_ended_is_not_judged_by_what_is_known_at_the_end() -> None:
    lines = ("join.p99_ms <= 5", "join.records_per_second >= 90", "input.records >= 2500")
    rows = judged_early(map(parse_threshold, (*lines, "join.missing == 0")), FIGURES)
    assert {row.threshold for row in rows} == {"join.p99_ms <= 5"}


def test_a_baseline_that_is_not_given_or_says_nothing_is_refused() -> None:
    given = [parse_threshold("sliding.p99_ms <= baseline")]
    with pytest.raises(ValueError, match="needs a baseline"):
        resolved(given, None, "", BOTH)
    with pytest.raises(ValueError, match=r"before\.json has no figure"):
        resolved(given, FIGURES, "before.json", {"a": ("join",)})


AT_LEAST = "pipeline.sustainable_rate_per_second >= 50000"
FOUND = 48_543.689  # records per second


def test_the_rate_that_a_search_found_is_judged_apart_from_what_its_run_measured() -> None:
    given = [parse_threshold(line) for line in ("join.p99_ms <= 50", AT_LEAST, f"b: {AT_LEAST}")]
    first, other = judged_search(given, "a", FOUND)
    assert sentence(first) == f"failed: {AT_LEAST}; a has 48544"
    assert (first.pipeline, first.value, first.limit) == ("a", 48_543.689, 50_000)
    assert sentence(other) == f"failed: b: {AT_LEAST}; b pipeline has no such figure"
    (row,) = judged_search(given[1:2], "a", 50_000.0)
    assert row.passed


def test_a_search_that_found_no_rate_fails_its_threshold() -> None:
    (row,) = judged_search([parse_threshold(AT_LEAST)], "a", None)
    assert (row.value, row.passed) == (None, False)


def test_the_rate_of_an_earlier_search_is_a_baseline() -> None:
    given = [parse_threshold("pipeline.sustainable_rate_per_second >= 0.9 * baseline")]
    before = figures(FOUND, old={"join": cell(40)})
    (one,) = resolved(given, before, "before.json", {"new": ("join",)})
    assert one.text == (
        "new: pipeline.sustainable_rate_per_second >= 43689.3201 # 0.9 * baseline "
        "(48543.7 in before.json)"
    )
    with pytest.raises(ValueError, match=r"before\.json has no figure"):
        resolved(given, FIGURES, "before.json", {"a": ("join",)})
