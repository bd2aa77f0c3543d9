"""Progress of a run, from events."""

import json
from typing import Any

import pytest

from schemas.events import FigureColumns, event_of
from schemas.report import SearchResult
from services.console.progress import RunProgress, headline
from services.console.report.words import search_sentence
from tests.unit.conductor.search_events import A_RESULT, A_SILENT_STEP, A_STEP
from tests.unit.requests import RUN_ID, a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit


def rate_line(result: dict[str, Any]) -> str:
    return search_sentence(SearchResult.model_validate(result))


def latency(stage: str, second: int, counts: dict[int, int]) -> dict[str, object]:
    return an_event(
        pipeline="spark-realtime",
        stage=stage,
        definition="latest",
        phase="measure",
        second=second,
        latencies_ms=list(counts),
        counts=list(counts.values()),
    )


def test_the_latency_shown_is_that_of_the_last_five_seconds_with_outputs() -> None:
    progress = RunProgress(a_request())
    progress.add(FigureColumns("results.latency", latency("join", 1000, {900: 1000})))
    for second in range(2000, 7000, 1000):
        progress.add(FigureColumns("results.latency", latency("join", second, {3: 99, 40: 1})))
    row = next(row for row in progress.rows() if row[1] == "join")
    assert row == ("spark-realtime", "join", 3, 3, 0, 0)


def test_verdicts_add_up_over_events_and_everything_but_exact_is_trouble() -> None:
    progress = RunProgress(a_request())
    zero = dict.fromkeys(("exact", "wrong", "missing", "late", "duplicate", "unexpected"), 0)
    where = {"pipeline": "spark-realtime", "stage": "parse", "phase": "measure", "second": 0}
    progress.add(FigureColumns("results.verdicts", an_event(**where, **(zero | {"exact": 10}))))
    progress.add(
        FigureColumns("results.verdicts", an_event(**where, **(zero | {"exact": 5, "wrong": 2})))
    )
    row = next(row for row in progress.rows() if row[1] == "parse")
    assert row[4:] == (15, 2)


def test_the_input_rate_leaves_out_the_second_that_is_not_over() -> None:
    progress = RunProgress(a_request())
    for second, records in ((1000, 400), (2000, 402), (3000, 17)):
        fields = {"topic": "traffic.flow", "pipeline": "", "stage": "", "second": second}
        progress.add(
            FigureColumns("results.throughput", an_event(**fields, records=records, bytes=1))
        )
    assert progress.input_rate() == 401


def test_the_headline_says_what_still_moves_while_it_warms_up() -> None:
    progress = RunProgress(a_request())
    progress.add(event_of("results.lifecycle", a_lifecycle_event("phase_started", phase="warm_up")))
    assert headline(progress, 0) == "warm-up"
    for still, said in (
        ([], "warm-up"),
        (["p50 of join still falls, 14 → 9 ms"], "warming up: p50 of join still falls, 14 → 9 ms"),
        (["p50 of join still falls, 9 → 7 ms", "x"],
         "warming up: p50 of join still falls, 9 → 7 ms (and 1 more)"),
    ):  # fmt: skip
        detail = json.dumps({"steady": None, "moving": still, "still": still})
        progress.add(event_of("results.lifecycle", a_lifecycle_event("steadiness", detail)))
        assert headline(progress, 0) == said


def test_the_headline_says_phase_and_time_left() -> None:
    progress = RunProgress(a_request())
    detail = '{"start_ms": 1000, "end_ms": 31000}'
    started = a_lifecycle_event("phase_started", detail, phase="measure")
    progress.add(event_of("results.lifecycle", started))
    assert headline(progress, 11_000) == "measuring, 20 s left"


def test_a_conclusion_ends_it() -> None:
    progress = RunProgress(a_request())
    detail = '{"valid": true, "clean": false, "invalid_reasons": []}'
    progress.add(event_of("results.lifecycle", a_lifecycle_event("concluded", detail)))
    assert (progress.done, progress.valid, progress.clean) == (True, True, False)


def test_a_service_that_answers_twice_is_shown_as_ready_once() -> None:
    progress = RunProgress(a_request())
    for producer in ("collector", "generator", "collector"):
        event = a_lifecycle_event("ready", "{}") | {"producer": producer}
        progress.add(event_of("results.lifecycle", event))
    assert progress.ready == ["collector", "generator"]


def test_a_pipeline_that_is_started_again_is_told_with_its_reason() -> None:
    progress = RunProgress(a_request())
    detail = json.dumps({"reason": "a worker failed to connect back", "try": 2})
    event = a_lifecycle_event("start_again", detail, pipeline="spark-realtime")
    progress.add(event_of("results.lifecycle", event))
    (line,) = progress.search
    assert "spark-realtime" in line
    assert "the machine was busy (a worker failed to connect back)" in line
    assert "try 2" in line


def test_a_search_is_told_step_by_step_with_its_evidence() -> None:
    progress = RunProgress(a_request())
    detail = '{"step": 2, "step_run_id": "x-step-02", "rate_per_second": 4000.0}'
    progress.add(
        event_of("results.lifecycle", a_lifecycle_event("phase_started", detail, phase="search"))
    )
    words = "searching the sustainable rate: step 2 at 4000 records/s"
    assert headline(progress, 0) == words
    for kind, told in (
        ("search_step", A_STEP),
        ("search_step", A_SILENT_STEP),
        ("sustainable_throughput", A_RESULT),
    ):
        event = an_event(kind=kind, invalid_reasons=[], detail=json.dumps(told))
        progress.add(event_of("results.conclusions", event))
    assert progress.search == [
        "step 1: 8000/s for 15 s NOT sustained: parse: median latency rises by 120 ms a second."
        " · parse median 2300 ms at most, +120 ms/s, queue 16000 · CPU 50% · "
        "not steady",
        "step 2: 4000/s for 15 s NOT sustained: The generator was late. Nothing was observed.",
        "Sustainable: 5820 records/s (from 5820/s, below 6600/s; steady-latency)."
        " The run at 5238/s was sustained.",
    ]


def step_begun(run_id: str, rate: int) -> dict[str, Any]:
    detail = {"step": 2, "step_run_id": run_id, "rate_per_second": rate}
    return a_lifecycle_event("phase_started", json.dumps(detail), phase="search")


def test_a_search_shows_the_figures_of_its_current_step_only() -> None:
    progress, step = RunProgress(a_request()), f"{RUN_ID}-step-02"
    progress.add(event_of("results.lifecycle", step_begun(f"{step}-warm", 2000)))
    words = "searching the sustainable rate: warming up at 2000 records/s"
    assert headline(progress, 0) == words
    progress.add(
        FigureColumns(
            "results.latency", latency("join", 1000, {900: 1}) | {"run_id": f"{step}-warm"}
        )
    )
    moving = json.dumps({"steady": False, "moving": ["spark-realtime join: p50 …"], "still": []})
    told = a_lifecycle_event("steadiness", moving) | {"run_id": f"{step}-warm"}
    progress.add(event_of("results.lifecycle", told))
    assert headline(progress, 0) == f"{words} · not steady yet"
    assert progress.recent_p99s("spark-realtime", "join") == [900]

    progress.add(event_of("results.lifecycle", step_begun(step, 4000)))
    assert headline(progress, 0) == "searching the sustainable rate: step 2 at 4000 records/s"
    assert progress.recent_p99s("spark-realtime", "join") == []
    for run_id, ms in ((step, 7), (f"{step}-warm", 900), (RUN_ID, 800)):
        progress.add(
            FigureColumns("results.latency", latency("join", 2000, {ms: 1}) | {"run_id": run_id})
        )
    assert progress.recent_p99s("spark-realtime", "join") == [7]

    progress.add(event_of("results.lifecycle", a_lifecycle_event("phase_started", phase="prepare")))
    progress.add(FigureColumns("results.latency", latency("join", 3000, {9: 1})))
    assert progress.recent_p99s("spark-realtime", "join") == [9]


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"verified": False, "verification": {}}, "The run at 5238/s was NOT sustained."),
        ({"verified": False}, "The run at 5238/s did not take place."),
    ],
)
def test_a_rate_that_nobody_verified_is_not_told_as_refuted(fields, end) -> None:
    assert rate_line(A_RESULT | fields).endswith(end)


@pytest.mark.parametrize(
    ("limited_by", "said"),
    [
        ("pipeline", "Limited by the pipeline. The run at"),
        ("generator", "Limited by the generator, not by the pipeline. The run at"),
        ("heap", "Limited by the heap of the pipeline's JVM, which is not"),
        ("", "steady-latency). The run at"),
    ],
)
def test_what_limited_a_search_is_said(limited_by: str, said: str) -> None:
    assert said in rate_line(A_RESULT | {"limited_by": limited_by})


def test_a_search_without_a_rate_says_so() -> None:
    nothing = A_RESULT | {"rate_per_second": None, "interval_per_second": [0.0, 10.0]}
    assert rate_line(nothing) == "No sustainable rate was found."


def test_a_search_that_ended_early_says_why() -> None:
    assert "after the time that its workload" in rate_line(A_RESULT | {"ended_by": "budget"})
    assert "ended" not in rate_line(A_RESULT | {"ended_by": "precision"})
