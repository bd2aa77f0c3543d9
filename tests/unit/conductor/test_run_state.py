"""The conductor's conclusions from the bus."""

import json

import pytest

from schemas.events import (
    ClockOffsetMeasured,
    Drained,
    Evaluating,
    EvaluationResumed,
    Failed,
    FigureColumns,
    FramesArrived,
    LoadFinished,
    Ready,
    event_of,
)
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from tests.unit.conductor.good_run import (
    EXACT,
    STAGES,
    a_good_run,
    drain,
    finish_load,
    lifecycle,
    measure,
    send_delays,
)
from tests.unit.requests import a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit


def test_a_good_run_is_valid_and_clean() -> None:
    conclusion = conclude(a_good_run())
    assert (conclusion.valid, conclusion.clean, conclusion.reasons) == (True, True, ())


@pytest.mark.parametrize("verdict", ["wrong", "missing", "late", "duplicate", "unexpected"])
def test_any_other_verdict_makes_the_ledger_unclean_but_the_run_stays_valid(verdict: str) -> None:
    state = a_good_run()
    drain(state, **{verdict: 1})
    conclusion = conclude(state)
    assert (conclusion.valid, conclusion.clean) == (True, False)


def test_a_late_generator_makes_the_run_invalid() -> None:
    state = a_good_run()
    send_delays(state, {60_000: 20})  # 20 of 520 are above 1 %
    assert conclude(state).reasons == (
        "The generator was late: p99 send delay 60.0 ms, allowed 50 ms.",
    )


def test_a_late_generator_in_the_warm_up_does_not_matter() -> None:
    state = a_good_run()
    send_delays(state, {900_000: 5000}, phase="warm_up")
    assert conclude(state).valid


def test_failed_and_lost_records_make_the_run_invalid() -> None:
    state = a_good_run()
    finish_load(state, failed=2, lost=3)
    assert conclude(state).reasons == (
        "The generator could not send 2 of 500 records.",
        "3 intended records are neither acknowledged nor failed; see generator.log.",
    )


def test_outputs_that_came_when_they_were_forgotten_make_the_run_invalid() -> None:
    state = a_good_run()
    verdicts = {"spark-realtime": dict.fromkeys(STAGES, EXACT)}
    for index, forgotten in enumerate((3, 4)):
        drained = Drained(
            verdicts=verdicts, came_forgotten=forgotten, instance_index=index, instance_count=2
        )
        lifecycle(state, Drained.name, detail=drained.model_dump_json())
    assert conclude(state).reasons == (
        "7 outputs arrived after the evaluator evicted their inputs from memory, so their "
        "latencies are unknown.",
    )


def test_an_evaluator_of_before_has_forgotten_nothing() -> None:
    state = a_good_run()
    verdicts = {"spark-realtime": dict.fromkeys(STAGES, EXACT)}
    lifecycle(state, Drained.name, detail=json.dumps({"verdicts": verdicts}))
    assert conclude(state).valid


def test_a_silent_stage_makes_the_run_invalid() -> None:
    state = RunState(a_request())
    finish_load(state)
    measure(state, "ingest", "parse", "join", "tumbling")
    drain(state)
    assert conclude(state).reasons == ("spark-realtime published no measured output of sliding.",)


def test_negative_latencies_make_the_run_invalid() -> None:
    state = a_good_run()
    measure(state, "parse", latency_ms=-1)
    conclusion = conclude(state)
    assert not conclusion.valid
    assert conclusion.reasons[0].startswith("100 latencies are negative")


@pytest.mark.parametrize(("wrong", "valid"), [(100, True), (99, False)])
def test_an_output_before_the_record_that_it_lacks_has_a_negative_latency(wrong, valid) -> None:
    state = a_good_run()
    measure(state, "parse", latency_ms=-1)
    verdicts = dict.fromkeys(STAGES, EXACT) | {"parse": EXACT | {"wrong": wrong}}
    detail = json.dumps({"verdicts": {"spark-realtime": verdicts}})
    lifecycle(state, Drained.name, detail=detail)
    conclusion = conclude(state)
    assert (conclusion.valid, conclusion.clean) == (valid, False)


def test_the_first_failure_is_the_only_reason() -> None:
    state = a_good_run()
    failed = {"pipeline": "spark-realtime", "detail": '{"reason": "out of memory"}'}
    lifecycle(state, Failed.name, **failed)
    lifecycle(state, Failed.name, detail='{"reason": "second"}')
    conclusion = conclude(state)
    assert conclusion.reasons == ("pipeline:spark-realtime failed: out of memory.",)


def test_a_run_that_never_drained_is_invalid_and_not_clean() -> None:
    state = RunState(a_request())
    finish_load(state)
    conclusion = conclude(state)
    assert not conclusion.clean
    assert conclusion.reasons == (
        "The evaluator did not give every expected output a verdict in time.",
    )


def test_readiness_needs_every_service_and_every_pipeline() -> None:
    state = RunState(a_request("one", "two"))
    for producer in ("generator", "evaluator", "collector"):
        state.add(
            event_of("results.lifecycle", a_lifecycle_event("ready") | {"producer": producer})
        )
    lifecycle(state, "ready", pipeline="one")
    assert state.missing_ready() == ["pipeline:two"]


def test_events_of_other_runs_change_nothing() -> None:
    state = RunState(a_request())
    event = a_lifecycle_event("failed", '{"reason": "x"}') | {"run_id": "another"}
    state.add(event_of("results.lifecycle", event))
    assert state.failure == ""


def test_a_service_of_two_instances_is_ready_when_both_are() -> None:
    state = RunState(a_request())
    for index in (1, 0):
        assert "evaluator" in state.missing_ready()
        detail = {"service": "evaluator", "instance_index": index, "instance_count": 2}
        lifecycle(state, Ready.name, producer=f"evaluator-{index}", detail=json.dumps(detail))
    assert "evaluator" not in state.missing_ready()


def test_the_totals_of_two_evaluators_add_up_when_both_have_drained() -> None:
    state = RunState(a_request())
    for index in (0, 1):
        assert state.drained is None
        drained = Drained(
            verdicts={"spark-realtime": {"parse": EXACT | {"late": index}}},
            instance_index=index,
            instance_count=2,
        )
        lifecycle(state, Drained.name, detail=drained.model_dump_json())
    assert state.drained is not None
    assert state.drained.verdicts == {
        "spark-realtime": {"parse": EXACT | {"exact": 200, "late": 1}}
    }


def test_the_clocks_and_the_restarts_of_the_evaluator_are_told() -> None:
    state = a_good_run()
    for offset_ms in (0.7, 0.4):
        detail = json.dumps({"offset_ms": offset_ms, "records": 6})
        lifecycle(state, ClockOffsetMeasured.name, detail=detail)
    lifecycle(state, EvaluationResumed.name)
    detail = conclude(state).detail
    assert (detail["clock_offset_ms"], detail["evaluator_restarts"]) == (0.4, 1)


def test_the_load_of_several_generators_is_finished_when_all_are() -> None:
    state = RunState(a_request())
    for index, ends in enumerate(((10, 7), (8, 9))):
        assert state.load_finished is None
        finished = LoadFinished(
            intended=100,
            acknowledged=99 - index,
            failed=1 + index,
            end_offsets={"traffic.flow": ends},
            instance_index=index,
            instance_count=2,
            faults={"late": 1},
            messages=(f"from {index}",),
        )
        lifecycle(state, LoadFinished.name, detail=finished.model_dump_json())
    together = state.load_finished
    assert together is not None
    assert (together.intended, together.acknowledged, together.failed) == (200, 197, 3)
    assert together.end_offsets == {"traffic.flow": (10, 9)}
    assert together.faults == {"late": 2}
    assert together.messages == ("from 0", "from 1")


def with_rules(state: RunState, **rules: float) -> RunState:
    validity = state.request.workload.validity.model_copy(update=rules)
    workload = state.request.workload.model_copy(update={"validity": validity})
    state.request = state.request.model_copy(update={"workload": workload})
    lifecycle(state, Ready.name, detail='{"machine_cores": 2}', producer="collector")
    return state


def test_a_container_without_the_stack_does_not_make_the_stack_a_use_by_others() -> None:
    state = with_rules(a_good_run(), max_others_share=0.1)
    for service, cpu_s in (("machine", 1.5), ("collector", 0.1), ("runner", 0.1), ("sampler", 0.1)):
        sample = an_event(service=service, pipeline="", interval_s=1.0, cpu_seconds=cpu_s)
        state.add(FigureColumns("results.resources", sample))
    assert conclude(state).valid
    sample = an_event(service="generator", pipeline="", interval_s=1.0, cpu_seconds=0.1)
    state.add(FigureColumns("results.resources", sample))
    assert conclude(state).reasons == (
        "Processes outside the stack used 55% of the CPU time, allowed 10%.",
    )


def test_the_container_of_the_pipelines_and_what_runs_outside_of_it_are_known() -> None:
    state = with_rules(a_good_run())
    assert (state.pipeline_cores, state.elsewhere) == (None, set())
    detail = '{"service": "sampler", "pipeline_cores": 1.5}'
    lifecycle(state, Ready.name, detail=detail, producer="sampler")
    assert (state.pipeline_cores, state.watched.cores) == (1.5, 2)
    for name, runs_elsewhere in (("here", "false"), ("there", "true")):
        detail = f'{{"runs_elsewhere": {runs_elsewhere}}}'
        lifecycle(state, Ready.name, detail=detail, producer="runner", pipeline=name)
    assert state.elsewhere == {"there"}


def test_an_evaluation_that_was_too_far_behind_makes_the_run_invalid() -> None:
    state = with_rules(a_good_run(), max_evaluator_lag_ms=5000)
    for lag_ms in (4000, 6000, 100):
        detail = f'{{"lag_ms": 0, "largest_lag_ms": {lag_ms}, "cells": 0}}'
        lifecycle(state, Evaluating.name, detail=detail)
    assert conclude(state).reasons == ("The evaluation was 6000 ms behind, allowed 5000 ms.",)
    assert conclude(with_rules(state, max_evaluator_lag_ms=6000)).valid


def test_a_host_that_gives_its_time_to_others_makes_the_run_invalid() -> None:
    state = with_rules(a_good_run(), max_steal_share=0.25)
    for stolen_s in (0.2, 1.0):  # of 2 s each, on two cores in a second
        used = {"interval_s": 1.0, "cpu_seconds": 0.5, "steal_seconds": stolen_s}
        sample = an_event(service="machine", pipeline="", **used)
        state.add(FigureColumns("results.resources", sample))
    assert conclude(state).reasons == ("CPU steal was 30%, allowed 25%.",)
    assert conclude(with_rules(state, max_steal_share=0.3)).valid


def test_shares_are_of_the_observed_machine_and_not_of_the_one_that_requested_the_run() -> None:
    state = RunState(a_request().model_copy(update={"environment": {"cores": 64}}))
    assert state.watched.cores == 64
    lifecycle(state, Ready.name, producer="collector")
    assert state.watched.cores == 64
    with_rules(state)
    used = {"interval_s": 1.0, "cpu_seconds": 0.5}
    state.add(FigureColumns("results.resources", an_event(service="machine", pipeline="", **used)))
    assert (state.watched.cores, state.machine_s) == (2, 2.0)


def test_a_machine_that_works_for_others_makes_the_run_invalid() -> None:
    state = with_rules(a_good_run(), max_others_share=0.25)
    for cpu_s in (1.6, 2.0):  # of 2 s each, on two cores in a second; the stack uses 0.5 s
        for service, used_s in (("machine", cpu_s), ("kafka", 0.3), ("store", 0.2)):
            sample = an_event(service=service, pipeline="", cpu_seconds=used_s, interval_s=1.0)
            state.add(FigureColumns("results.resources", sample))
    assert conclude(state).reasons == (
        "Processes outside the stack used 65% of the CPU time, allowed 25%.",
    )
    assert conclude(with_rules(state, max_others_share=0.65)).valid


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"max_others_share": 0.05}, "The CPU time of the machine is unknown."),
        ({"max_steal_share": 0.05}, "The CPU time of the machine is unknown."),
        ({"max_evaluator_lag_ms": 100}, "It is unknown how far the evaluation was behind."),
    ],
)
def test_a_limit_of_something_unknown_makes_the_run_invalid(rules: dict, reason: str) -> None:
    assert conclude(a_good_run()).valid
    assert conclude(with_rules(a_good_run(), **rules)).reasons == (reason,)


def test_a_collector_that_sees_only_itself_says_nothing_of_others() -> None:
    """In a container the broker and the pipelines would count as other processes."""
    state = with_rules(a_good_run(), max_others_share=0.25)
    for service, used_s in (("machine", 1.9), ("collector", 0.1)):
        sample = an_event(service=service, pipeline="", cpu_seconds=used_s, interval_s=1.0)
        state.add(FigureColumns("results.resources", sample))
    assert conclude(state).valid


def test_pipelines_that_start_after_the_load_need_not_be_ready_before_it() -> None:
    request = a_request("one")
    workload = request.workload.model_copy(update={"pipelines_start_s": 20})
    state = RunState(request.model_copy(update={"workload": workload}))
    assert state.missing_ready() == ["collector", "evaluator", "generator"]


@pytest.mark.parametrize(
    ("frames", "lost"),
    [({"lost": 3, "not_appended": 2}, 12), (None, None)],
    ids=["what the gateway counted", "a gateway that has not told"],
)
def test_losses_are_records_before_the_topics_and_missing_results(
    frames: dict[str, int] | None, lost: int | None
) -> None:
    request = a_request()
    workload = request.workload.model_copy(update={"transport": "udp"})
    state = RunState(request.model_copy(update={"workload": workload}))
    finish_load(state, failed=6)
    missing = {"spark-realtime": {"join": 7}}
    drained = Drained(verdicts={}, missing=missing).model_dump_json()
    lifecycle(state, Drained.name, detail=drained)
    if frames is not None:
        detail = FramesArrived.model_validate({"transport": "udp", "sent": 500} | frames)
        lifecycle(state, FramesArrived.name, detail=detail.model_dump_json())
    assert state.lost == (None if lost is None else {"spark-realtime": {"join": lost}})
