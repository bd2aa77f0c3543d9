"""Figures of a run from the bus, checked against thresholds."""

import json
from typing import Any

import pytest

from analysis.thresholds import ENDED
from schemas import protocol
from schemas.events import Drained, FigureColumns
from schemas.protocol import Interleaving, PhasePlan, Phases
from services.conductor.evidence import EARLY, PhaseFigures
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from tests.unit.conductor.good_run import STAGES, drain, finish_load, lifecycle, send_delays
from tests.unit.requests import a_request, an_event

pytestmark = pytest.mark.unit
PHASES = PhasePlan(load_start_ms=10_000, phases=Phases(warm_up_s=10, measure_s=30))


def a_run(*thresholds: str, **changes: Any) -> RunState:
    request = a_request().model_copy(update=changes)
    workload = request.workload.model_copy(update={"thresholds": thresholds})
    state = RunState(request.model_copy(update={"workload": workload}))
    if state.measured is not None:
        state.measured.begins(PHASES)
    return state


def latencies(state: RunState, stage: str, counts: dict[int, int], phase: str = "measure") -> None:
    event = an_event(pipeline="spark-realtime", stage=stage, definition="latest", phase=phase,
                     second=0, latencies_ms=list(counts), counts=list(counts.values()))  # fmt: skip
    state.add(FigureColumns("results.latency", event))


def rows(state: RunState) -> list[tuple[str, float | None, bool]]:
    finish_load(state)
    for stage in STAGES:
        latencies(state, stage, {4: 1})
    drain(state, late=3)
    return [
        (row["stage"], row["value"], row["passed"]) for row in conclude(state).detail["thresholds"]
    ]


def test_percentiles_are_of_the_measured_phase_and_exact() -> None:
    state = a_run("join.p99_ms <= 50", "join.max_ms <= 50")
    latencies(state, "join", {900: 500}, phase="warm_up")
    latencies(state, "join", {5: 97})
    latencies(state, "join", {60: 2})
    assert rows(state) == [("join", 60, False), ("join", 60, False)]


def test_verdicts_are_those_of_the_end() -> None:
    assert rows(a_run("join.late == 3", "join.outputs == 103", "parse.not_exact == 0")) == [
        ("join", 3, True),
        ("join", 103, True),
        ("parse", 0, True),
    ]


def test_a_run_that_a_threshold_ended_fails_no_threshold_on_what_is_known_at_the_end() -> None:
    state = a_run("join.p99_ms <= 50 abort", "*.not_exact == 0", "parse.p99_ms <= 50")
    for stage in STAGES:
        latencies(state, stage, {60 if stage == "join" else 4: 5})
    state.failure = f"{ENDED} that failed: join.p99_ms <= 50 abort; spark-realtime join has 60"
    found = conclude(state).detail["thresholds"]
    assert [(row["threshold"], row["value"], row["passed"]) for row in found] == [
        ("join.p99_ms <= 50 abort", 60, False),
        ("parse.p99_ms <= 50", 4, True),
    ]
    state.failure = "The run was interrupted"
    assert len(conclude(state).detail["thresholds"]) == 2 + len(STAGES)


def verdicts(state: RunState, stage: str, phase: str = "measure", **counts: int) -> None:
    none = dict.fromkeys(protocol.VERDICTS, 0)
    event = an_event(pipeline="spark-realtime", stage=stage, phase=phase, second=0, samples=[],
                     **none | counts)  # fmt: skip
    state.add(FigureColumns("results.verdicts", event))


def test_a_maximum_of_verdicts_is_judged_while_the_run_goes_on() -> None:
    state = a_run("join.wrong <= 2 abort", "*.not_exact == 0", "join.exact >= 1000",
                  "join.late == 0")  # fmt: skip
    assert state.measured is not None
    verdicts(state, "join", phase="warm_up", wrong=9)
    verdicts(state, "join", exact=100, wrong=2)
    verdicts(state, "join", exact=100, missing=1)
    verdicts(state, "join", missing=-1, late=1)
    cell = state.measured.figures(early=True).pipelines["spark-realtime"].stages["join"]
    assert (cell.verdicts["wrong"], cell.verdicts["missing"], cell.outputs) == (2, 0, None)
    verdicts(state, "join", wrong=1)
    limit = "join.wrong <= 2 abort"
    state.failure = f"{ENDED} that failed: {limit}; spark-realtime join has 3"
    found = conclude(state).detail["thresholds"]
    assert [(row["threshold"], row["stage"], row["value"], row["passed"]) for row in found] == [
        (limit, "join", 3, False),
        ("join.late == 0", "join", 1, False),
    ]


def test_rates_and_use_count_between_the_bounds() -> None:
    state = a_run("join.records_per_second == 10", "pipeline.cpu_cores == 0.5",
                  "pipeline.memory_mb == 2", "pipeline.heap_mb == 1",
                  "pipeline.lag_records == 7")  # fmt: skip
    for second, records in ((19_000, 9_999), (20_000, 200), (49_000, 100), (50_000, 9_999)):
        event = an_event(pipeline="spark-realtime", stage="join", second=second, records=records)
        state.add(FigureColumns("results.throughput", event))
    for time, cpu_s, memory in ((19_999, 9.0, 9_000_000), (21_000, 1.0, 1_000_000),
                                (22_000, 0.0, 2_000_000)):  # fmt: skip
        event = an_event(service="p", pipeline="spark-realtime", interval_s=1.0, cpu_seconds=cpu_s,
                         memory_bytes=memory, heap_used_bytes=memory // 2
                         ) | {"time": time}  # fmt: skip
        state.add(FigureColumns("results.resources", event))
    for time, lag in ((19_000, 99), (21_000, 7), (22_000, 0), (23_000, None)):
        event = an_event(pipeline="spark-realtime", stage="join", lag_records=lag)
        state.add(FigureColumns("results.pipeline", event | {"time": time}))
    assert [value for _, value, _ in rows(state)] == [10, 0.5, 2, 1, 7]


def test_the_newest_events_before_the_times_are_known_are_kept() -> None:
    request = a_request()
    workload = request.workload.model_copy(update={"thresholds": ("join.outputs >= 0",)})
    measured = PhaseFigures(request.model_copy(update={"workload": workload}))
    for second in range(21):
        for _ in range(100):
            where = {"pipeline": "spark-realtime", "stage": "join", "second": 1000 * second}
            measured.add(FigureColumns("results.throughput", an_event(**where, records=1)))
    assert len(measured._early) == EARLY == 500
    measured.begins(PHASES)
    stages = measured.figures().pipelines["spark-realtime"].stages
    assert stages["join"].records_per_second == 100 / 30


def use(state: RunState, at_s: int, cpu_s: float) -> None:
    event = an_event(service="p", pipeline="spark-realtime", interval_s=1.0, cpu_seconds=cpu_s,
                     memory_bytes=1) | {"time": 1000 * at_s}  # fmt: skip
    state.add(FigureColumns("results.resources", event))
    looked_at(state, at_s)


def looked_at(state: RunState, at_s: int) -> None:
    event = an_event(service="machine", pipeline="", interval_s=1.0, cpu_seconds=1.0,
                     memory_bytes=1) | {"time": 1000 * at_s}  # fmt: skip
    state.add(FigureColumns("results.resources", event))


def sent(state: RunState, second: int, records: int) -> None:
    event = an_event(phase="measure", second=1000 * second, send_delays_us=[100],
                     counts=[records], acknowledged=records)  # fmt: skip
    state.add(FigureColumns("results.generator", event))


def test_rates_and_cost_of_pipelines_in_turns_are_of_their_own_turns() -> None:
    turns = Interleaving(block_s=5, order=("spark-realtime", "other"))
    state = a_run("join.records_per_second == 10", "input.records == 840",
                  "pipeline.core_seconds_per_million_records == 2000",
                  interleaved=turns)  # fmt: skip
    # Measured from 20 to 50: its own turns are 20 to 25, 30 to 35 and 40 to 45.
    for second in range(20, 50):
        own = (second - 20) % 10 < 5
        sent(state, second, 20 if own else 36)
        use(state, second + 1, 0.04 if own else 0.0)
    event = an_event(pipeline="spark-realtime", stage="join", second=20_000, records=150)
    state.add(FigureColumns("results.throughput", event))
    # 15 s of 0.04 cores for 300 records.
    assert [value for _, value, _ in rows(state)] == [10, 840, 2000]


def test_samples_that_are_missing_are_taken_for_as_much_as_the_others() -> None:
    state = a_run("pipeline.core_seconds_per_million_records == 1")
    sent(state, 20, 1000)
    for second in range(20, 35):  # of 30 seconds
        use(state, second, 0.5)
    assert [value for _, value, _ in rows(state)] == [15_000]
    assert state.measured is not None
    used = state.measured.figures().pipelines["spark-realtime"].resources
    assert used.core_seconds_per_million_records == 7_500, "what may still come is not missing"


def test_the_time_before_a_pipeline_starts_costs_nothing() -> None:
    state = a_run("pipeline.core_seconds_per_million_records == 1")
    sent(state, 20, 1000)
    for second in range(20, 35):
        looked_at(state, second)
    for second in range(35, 50):
        use(state, second, 0.5)
    assert [value for _, value, _ in rows(state)] == [7_500]


def test_what_came_before_the_bounds_were_known_counts_too() -> None:
    request = a_request()
    lines = {"thresholds": ("join.records_per_second == 1",)}
    workload = request.workload.model_copy(update=lines)
    state = RunState(request.model_copy(update={"workload": workload}))
    event = an_event(pipeline="spark-realtime", stage="join", second=20_000, records=30)
    state.add(FigureColumns("results.throughput", event))
    assert state.measured is not None
    state.measured.begins(PHASES)
    assert rows(state) == [("join", 1, True)]


def test_what_was_sent_is_in_milliseconds() -> None:
    state = a_run("input.send_delay_p99_ms == 0.3", "input.records == 500")
    event = an_event(phase="measure", second=20_000, send_delays_us=[100, 300], counts=[400, 100],
                     acknowledged=500)  # fmt: skip
    state.add(FigureColumns("results.generator", event))
    assert [passed for _, _, passed in rows(state)] == [True, True]


def test_a_run_without_thresholds_keeps_no_figures() -> None:
    state = a_run()
    send_delays(state, {100: 1})
    lifecycle(state, Drained.name, detail=json.dumps({"verdicts": {}}))
    assert state.measured is None
    assert "thresholds" not in conclude(state).detail
