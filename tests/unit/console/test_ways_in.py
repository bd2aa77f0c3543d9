"""The report of records received through the gateway."""

import pytest

from schemas.report import ArrivedFrames, Input, PipelineReport, Report, StageReport
from services.console.report.words import way_in_sentences
from services.console.studies.figures import figure_of

pytestmark = pytest.mark.unit

UDP = {
    "transport": "udp",
    "sent": 40_000,
    "received": 39_960,
    "appended": 39_958,
    "lost": 40,
    "not_appended": 2,
    "duplicates": 0,
    "refused": 3,
    "turned_away": 0,
    "transit_us": {"p50": 80, "p99": 900, "max": 4_000},
    "append_ms": {"p50": 1, "p99": 5, "max": 40},
}


def report(way_in):
    return Report(
        run_id="r",
        valid=True,
        input=Input(records_per_second=999.0),
        pipelines={"p": PipelineReport(stages={"s": StageReport()})},
        way_in=way_in and ArrivedFrames.model_validate(way_in),
    )


def test_counts_and_times_are_in_a_sentence():
    assert way_in_sentences(report(UDP)) == [
        "By udp: 40000 frames sent, 39958 appended, 40 lost (0.10%), 2 not appended, 3 refused; to"
        " the gateway p50 80 and p99 900 µs, from there into Kafka p50 1 and p99 5 ms."
    ]
    nothing = UDP | dict.fromkeys(("sent", "received", "appended", "lost", "not_appended"), 0)
    none = dict.fromkeys(("p50", "p99", "max"))
    nothing |= {"refused": 0, "transit_us": none, "append_ms": none}
    assert way_in_sentences(report(nothing)) == ["By udp: 0 frames sent, 0 appended, 0 lost."]


def test_straight_to_kafka_says_nothing():
    assert way_in_sentences(report(None)) == []


def test_a_study_shows_them():
    names = ("way_in_lost", "way_in_p50_us", "way_in_p99_us", "input_per_second")
    assert [figure_of(report(UDP), "p", "s", name) for name in names] == [40, 80, 900, 999]
    assert figure_of(report(None), "p", "s", "way_in_lost") is None
