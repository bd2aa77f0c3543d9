"""The evidence about each second of a run, from events with literal values."""

from typing import Any

import pytest

from schemas.events import FigureColumns
from schemas.protocol import PhasePlan
from schemas.suite import SuiteRun
from services.conductor.evidence import (
    MOST_SECONDS,
    OPEN_SECONDS,
    WARM_UP_OPEN_SECONDS,
    CollectedEvidence,
)
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from tests.unit.conductor.good_run import a_good_run
from tests.unit.requests import a_request, an_event

pytestmark = pytest.mark.unit

START_S = 1_000
PHASES = PhasePlan(load_start_ms=1000 * (START_S - 10), phases=a_request().workload.phases)
PLACE = ("spark-realtime", "parse")


def latency(at: int, definition: str, *values_ms: int, phase: str = "measure") -> dict[str, Any]:
    """Outputs of one stage in a second."""
    pipeline, stage = PLACE
    where = {"pipeline": pipeline, "stage": stage, "definition": definition, "phase": phase}
    counts = {"latencies_ms": list(values_ms), "counts": [1] * len(values_ms)}
    return an_event(second=1000 * at, **where, **counts)


def used(at: int, service: str, cpu_s: float, pipeline: str = "", **more: float) -> dict[str, Any]:
    """A sample of the second that ends at `at`."""
    about = {"service": service, "pipeline": pipeline, "interval_s": 1.0, "cpu_seconds": cpu_s}
    return an_event(**about, **more) | {"time": 1000 * at}


def watched() -> CollectedEvidence:
    """Thirty seconds with 95th percentiles of 12 and 10 ms, and a send delay of 1 ms."""
    request = a_request().model_copy(update={"environment": {"cores": 2}})
    found = CollectedEvidence(request)
    for at in range(START_S, START_S + 30):
        found.add(FigureColumns("results.latency", latency(at, "event_time", *[5] * 9, 12)))
        found.add(FigureColumns("results.latency", latency(at, "latest", *[4] * 9, 10)))
        found.add(FigureColumns("results.latency", latency(at, "mean", 900)))
        sent = {"phase": "measure", "second": 1000 * at, "send_delays_us": [1000], "counts": [10]}
        found.add(FigureColumns("results.generator", an_event(**sent)))
    return found


def test_percentiles_of_each_second_by_definition() -> None:
    found = watched()
    found.add(FigureColumns("results.latency", latency(START_S, "latest", 999, phase="warm_up")))
    evidence = found.evidence(PHASES)
    assert evidence.event_time_ms == {PLACE: dict.fromkeys(range(START_S, START_S + 30), 12.0)}
    assert evidence.latest_ms == {PLACE: dict.fromkeys(range(START_S, START_S + 30), 10.0)}
    assert evidence.send_ms == dict.fromkeys(range(START_S, START_S + 30), 1.0)
    assert (evidence.cores, evidence.allowed_send_ms) == (2, 50)


def test_counts_of_one_second_may_come_in_several_events() -> None:
    found = watched()
    found.add(FigureColumns("results.latency", latency(START_S, "event_time", 70, 80, 90)))
    assert found.evidence(PHASES).event_time_ms[PLACE][START_S] == 90.0


@pytest.mark.parametrize(("outputs", "is_examined"), [(2, False), (3, True)])
def test_a_last_second_with_few_outputs_is_not_examined(outputs: int, is_examined: bool) -> None:
    found, end = CollectedEvidence(a_request()), START_S + 30
    for at in range(START_S, end):
        found.add(FigureColumns("results.latency", latency(at, "event_time", *[5] * 30)))
    found.add(FigureColumns("results.latency", latency(end, "event_time", *[90] * outputs)))
    examined = found.evidence(PHASES).event_time_ms[PLACE]
    assert len(examined) == 30 + is_examined
    assert (end in examined) is is_examined


def test_the_share_of_send_delays_for_which_the_clients_queue_was_full() -> None:
    found = watched()
    sent = {"phase": "measure", "second": 1000 * START_S, "send_delays_us": [], "counts": []}
    found.add(FigureColumns("results.generator", an_event(**sent, queue_full_us=2_500)))
    assert found.evidence(PHASES).queue_full_share == {START_S: 0.25}
    assert found.evidence(PHASES, "warm_up").queue_full_share == {}


def test_a_gateway_in_between_does_not_make_the_broker_late() -> None:
    request = a_request()
    workload = request.workload.model_copy(update={"transport": "tcp"})
    found = CollectedEvidence(request.model_copy(update={"workload": workload}))
    sent = {"phase": "measure", "second": 1000 * START_S, "send_delays_us": [900], "counts": [1]}
    found.add(FigureColumns("results.generator", an_event(**sent, queue_full_us=900)))
    assert found.evidence(PHASES).queue_full_share == {}


def test_a_second_that_is_long_over_stays_as_it_is() -> None:
    found = watched()
    for at in range(START_S + 30, START_S + 30 + OPEN_SECONDS):
        found.add(FigureColumns("results.latency", latency(at, "event_time", 5)))
    found.add(FigureColumns("results.latency", latency(START_S, "event_time", *[900] * 100)))
    assert found.evidence(PHASES).event_time_ms[PLACE][START_S] == 12.0


def test_counts_of_the_warm_up_are_discarded_early_in_the_measure_phase() -> None:
    found = CollectedEvidence(a_request())
    for at in range(START_S - 5, START_S):
        found.add(
            FigureColumns(
                "results.latency", latency(at, "event_time", *[5] * 9, 12, phase="warm_up")
            )
        )
    for at in range(START_S, START_S + WARM_UP_OPEN_SECONDS):
        found.add(FigureColumns("results.latency", latency(at, "event_time", 5)))
    found.add(
        FigureColumns(
            "results.latency", latency(START_S - 1, "event_time", *[90] * 20, phase="warm_up")
        )
    )
    found.add(
        FigureColumns("results.latency", latency(START_S + WARM_UP_OPEN_SECONDS, "event_time", 5))
    )
    found.add(
        FigureColumns(
            "results.latency", latency(START_S - 1, "event_time", *[900] * 99, phase="warm_up")
        )
    )
    of_place = found.evidence(PHASES, "warm_up").event_time_ms[PLACE]
    expected = dict.fromkeys(range(START_S - 5, START_S - 1), 12.0)
    assert of_place == expected | {START_S - 1: 90.0}


def test_only_definitions_that_the_evidence_needs_are_counted() -> None:
    kept = {definition for _phase, definition, _place in watched()._latencies}
    assert kept == {"event_time", "latest"}


def test_what_parts_used_is_known_by_their_names_in_the_measured_phase() -> None:
    found = watched()
    for at in (START_S - 5, START_S + 1, START_S + 45):
        found.add(
            FigureColumns("results.resources", used(at, "kafka", 0.5, run_queue_wait_seconds=0.25))
        )
        found.add(FigureColumns("results.resources", used(at, "runner", 0.5, "spark-realtime")))
    uses = found.evidence(PHASES).uses
    assert sorted(uses) == ["broker", "spark-realtime"]
    assert list(uses["broker"]) == [START_S]  # the sample contains the usage of the second before
    assert uses["broker"][START_S].waited_s == 0.25
    assert uses["spark-realtime"][START_S].cpu_s == 0.5


def test_the_evaluators_lag_is_that_of_the_time_since_it_was_told_last() -> None:
    found = watched()
    for at, lag_ms in ((START_S, 100), (START_S + 3, 4_000)):
        found.add_lag(at, lag_ms)
    behind = found.evidence(PHASES).behind_ms
    assert [behind.get(START_S + n) for n in range(-1, 5)] == [100, 100, 4000, 4000, 4000, None]


def test_no_more_is_kept_than_three_hours() -> None:
    found = watched()
    for at in range(START_S, START_S + MOST_SECONDS + 100):
        found.add(FigureColumns("results.resources", used(at, "kafka", 0.5)))
        found.add(FigureColumns("results.latency", latency(at, "event_time", 5)))
    phases = PHASES.phases.model_copy(update={"measure_s": 86_400})
    evidence = found.evidence(PHASES.model_copy(update={"phases": phases}))
    assert len(evidence.uses["broker"]) == MOST_SECONDS
    assert len(evidence.event_time_ms[PLACE]) <= MOST_SECONDS + OPEN_SECONDS


def test_the_workloads_own_limit_of_others_counts() -> None:
    request = a_request()
    validity = request.workload.validity.model_copy(update={"max_others_share": 0.4})
    workload = request.workload.model_copy(update={"validity": validity})
    found = CollectedEvidence(request.model_copy(update={"workload": workload}))
    assert found.evidence(PHASES).others_allowed == 0.4
    assert CollectedEvidence(request).evidence(PHASES).others_allowed == 0.1


@pytest.mark.parametrize(("limit", "allowed"), [(0.4, 0.1), (0.05, 0.05)])
def test_the_limit_of_a_suite_does_not_raise_that_of_disturbances(
    limit: float, allowed: float
) -> None:
    request = a_request()
    validity = request.workload.validity.model_copy(update={"max_others_share": limit})
    workload = request.workload.model_copy(update={"validity": validity})
    suite = SuiteRun(name="nightly", round=1, step=1)
    changes = {"workload": workload, "suite": suite}
    assert (
        CollectedEvidence(request.model_copy(update=changes)).evidence(PHASES).others_allowed
        == allowed
    )


def test_a_conclusion_says_it() -> None:
    state = a_good_run()
    assert "late" not in conclude(state).detail
    state.watched = watched()
    state.begin_measuring(PHASES)
    told = conclude(state).detail
    assert (told["disturbed"], told["late"]["seconds"], told["late"]["of_seconds"]) == (
        False,
        0,
        30,
    )
    assert told["late"]["said"] == "Undisturbed: none of 30 seconds was late."
    assert told["room"] == {}


def test_a_run_that_measured_nothing_is_neither_disturbed_nor_undisturbed() -> None:
    state = RunState(a_request())
    state.begin_measuring(PHASES)
    told = conclude(state).detail
    assert (told["disturbed"], told["late"]["of_seconds"], told["late"]["said"]) == (None, 0, "")


def strict(state: RunState) -> RunState:
    """The same with the rules for citable figures."""
    rules = {"must_be_steady": True, "must_be_undisturbed": True}
    validity = state.request.workload.validity.model_copy(update=rules)
    workload = state.request.workload.model_copy(update={"validity": validity})
    state.request = state.request.model_copy(update={"workload": workload})
    return state


def test_a_run_to_be_cited_is_invalid_where_nothing_is_known() -> None:
    assert conclude(strict(a_good_run())).reasons == (
        "It is unknown whether the measured phase was steady.",
        "It is unknown whether the run was disturbed.",
    )


def test_a_run_to_be_cited_is_invalid_when_it_was_disturbed() -> None:
    state = strict(a_good_run())
    state.watched = watched()
    for at in (START_S + 10, START_S + 11):
        state.watched.add(FigureColumns("results.latency", latency(at, "event_time", *[900] * 100)))
    state.begin_measuring(PHASES)
    assert conclude(state).reasons == (
        "It is unknown whether the measured phase was steady.",
        "Disturbed: 2 of 30 seconds were late: 2 by the broker.",
    )


def heap_of(second: int, gc_s: float) -> dict[str, Any]:
    """A sample of a pipeline whose JVM may use 1 GiB."""
    return used(second, "runner", 1.0) | {
        "pipeline": "p",
        "gc_seconds": gc_s,
        "heap_used_bytes": 2**29,
        "heap_max_bytes": 2**30,
    }


@pytest.mark.parametrize(
    ("gc_s", "part", "said"), [(0.3, "heap", "p was limited by its heap of 1 GiB"), (0.02, "", "")]
)
def test_a_pipeline_with_too_small_a_heap_is_named(gc_s: float, part: str, said: str) -> None:
    found = watched()
    for at in range(START_S, START_S + 60):
        found.add(FigureColumns("results.resources", heap_of(at, gc_s)))
    told = found.detail(PHASES)
    assert told["heap"]["p"]["limited"] is bool(part)
    assert (said in told["late"]["said"]) is True
    assert ("limited by its heap" in told["late"]["said"]) is bool(part)
    assert found.in_pipeline(PHASES) == (part or "pipeline")
