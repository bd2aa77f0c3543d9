"""Figures of a study come from the report of a run, and are blank if it lacks them."""

from math import inf

import pytest

from schemas.study import FIGURES as KNOWN
from schemas.study import PREFIXES
from services.console.studies.figures import FIGURES, figure_of, title_of, values_of_faults
from tests.unit.console.studies.reports import cell, report

pytestmark = pytest.mark.unit

BURSTS = [
    {"normal_ms": 10.0, "highest_median_ms": 100, "high_for_s": 1},
    {"normal_ms": 12.0, "highest_median_ms": 300, "high_for_s": 3},
    {"normal_ms": 14.0, "highest_median_ms": 200, "high_for_s": 2},
]
START = [{"first_output_s": 16, "high_for_s": 81, "peak_per_second": 900}]


def test_every_figure_that_a_study_may_name_is_known():
    assert set(KNOWN) == set(FIGURES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p50_ms", 3.0),
        ("p99_ms", 9.0),
        ("event_time_p99_ms", 77.0),
        ("p95_ms", None),
        ("sustainable_per_second", 4200.0),
        ("normal_median_ms", 12.0),
        ("highest_median_ms", 200.0),
        ("high_for_s", 2.0),
        ("memory_mb", 250.0),
        ("core_s_per_million", 31.5),
    ],
)
def test_a_figure_of_a_stage(name, value):
    found = report(parse=cell(3, 9, recovery=BURSTS))
    assert figure_of(found, "p", "parse", name) == value


def test_a_burst_at_the_start():
    found = report(parse=cell(3, 9, recovery=START))
    names = ("first_output_s", "caught_up_s", "peak_outputs_per_second")
    assert [figure_of(found, "p", "parse", name) for name in names] == [16, 81, 900]


def test_a_stage_that_never_got_over_a_burst_has_no_time():
    never = [*BURSTS, {"normal_ms": 10.0, "highest_median_ms": 900, "high_for_s": None}]
    assert figure_of(report(parse=cell(3, 9, recovery=never)), "p", "parse", "high_for_s") is None


def fault(**figures):
    """Recovery from one of several faults."""
    return {
        "event": "kill of the driver",
        "normal_ms": 10.0,
        "highest_median_ms": 900,
        "high_for_s": 8,
        "silent_s": 4,
        "outage_s": 4.5,
        "before_p99_ms": 30,
        "extra_core_s": 6.5,
    } | figures


FAULTS = [
    fault(),
    fault(high_for_s=12, outage_s=9.25, extra_core_s=-1.5),
    fault(high_for_s=9, outage_s=5.125, extra_core_s=7.0),
]
VERDICTS = {"exact": 900, "late": 1, "missing": 2, "duplicate": 30, "wrong": 4, "unexpected": 5}


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        ("outage_s", 5.125, [4.5, 9.25, 5.125]),
        ("normal_again_s", 9, [8, 12, 9]),
        ("extra_core_s", 6.5, [6.5, -1.5, 7.0]),
        ("before_p99_ms", 30, [30, 30, 30]),
        ("missing", 2, []),
        ("late", 1, []),
        ("duplicates", 30, []),
        ("wrong", 9, []),
        ("aborted", 17, []),
    ],
)
def test_figures_of_three_faults_are_medians_with_their_values(name, value, values):
    found = report(parse=cell(3, 9, recovery=FAULTS, verdicts=VERDICTS, aborted=17))
    assert figure_of(found, "p", "parse", name) == value
    assert values_of_faults(found.pipelines["p"].stages["parse"], name) == values


def test_what_did_not_end_counts_as_longer_than_all_else():
    never = fault(high_for_s=None, outage_s=None, extra_core_s=None)
    found = report(parse=cell(3, 9, recovery=[*FAULTS[:2], never]))
    assert figure_of(found, "p", "parse", "outage_s") == 9.25
    assert figure_of(found, "p", "parse", "normal_again_s") == 12
    assert figure_of(found, "p", "parse", "extra_core_s") is None
    mostly = report(parse=cell(3, 9, recovery=[FAULTS[0], never, never]))
    assert figure_of(mostly, "p", "parse", "outage_s") == inf


def test_what_is_unknown_of_a_fault_is_unknown_of_all():
    unknown = fault(normal_ms=None, high_for_s=None)
    del unknown["outage_s"]
    found = report(parse=cell(3, 9, recovery=[*FAULTS[:2], unknown]))
    assert figure_of(found, "p", "parse", "outage_s") is None
    assert figure_of(found, "p", "parse", "normal_again_s") is None


def test_bursts_are_no_faults():
    found = report(parse=cell(3, 9, recovery=BURSTS))
    assert figure_of(found, "p", "parse", "normal_again_s") is None
    assert figure_of(found, "p", "parse", "missing") is None


def test_what_a_run_does_not_have_is_blank():
    assert figure_of(report(parse=cell()), "p", "parse", "p50_ms") is None
    assert figure_of(report(parse=cell(1, 2)), "p", "join", "p50_ms") is None
    assert figure_of(report(parse=cell(1, 2)), "other", "parse", "p50_ms") is None


def test_a_rare_percentile_needs_outputs_above_it():
    counted = {"p99": 7, "p999": 8, "p99999": 9}
    few, many = (
        report(join=cell() | {"latency_ms": {"latest": counted | {"count": count}}})
        for count in (499_999, 500_000)
    )
    names = ("p99_ms", "p999_ms", "p99999_ms")
    assert [figure_of(few, "p", "join", name) for name in names] == [7, 8, None]
    assert [figure_of(many, "p", "join", name) for name in names] == [7, 8, 9]


def test_titles_have_units():
    assert title_of("p99999_ms") == "p99.999, ms"
    assert title_of("p50_ms") == "p50, ms"
    assert title_of("event_time_p99_ms") == "p99, event time, ms"


@pytest.mark.parametrize("prefix", [each for each in PREFIXES if each])
def test_every_definition_has_a_title_in_words(prefix):
    assert "_" not in title_of(f"{prefix}p50_ms")
