"""From events of one step to the observations that policies judge."""

import pytest

from analysis.steadiness import MOST_POINTS
from schemas.events import Drained, FigureColumns, LoadFinished
from schemas.observation import Second, StageObserved, StepObservation
from schemas.protocol import PhasePlan, Phases
from schemas.search import Search
from services.conductor.search.bisection import observation_detail
from services.conductor.search.policies import judged
from services.conductor.search.searching import StepEvents

pytestmark = pytest.mark.unit

T0 = 1_700_000_000_000
# 1 s of warm-up, 3 s measured, 3 s of cool-down.
PLAN = PhasePlan(load_start_ms=T0, phases=Phases(warm_up_s=1, measure_s=3, cool_down_s=3))
LOAD = LoadFinished(intended=70, acknowledged=69, failed=1, end_offsets={})
DRAINED = Drained(
    verdicts={
        "spark": {
            "join": {
                "exact": 13,
                "wrong": 0,
                "missing": 1,
                "late": 1,
                "duplicate": 7,
                "unexpected": 7,
            }
        }
    }
)


def latency(second: int, counts: dict[int, int], phase: str = "measure", **other: str) -> tuple:
    event = {
        "run_id": "step",
        "pipeline": "spark",
        "stage": "join",
        "definition": "latest",
        "phase": phase,
        "second": T0 + 1000 * second,
        "latencies_ms": list(counts),
        "counts": list(counts.values()),
    }
    return "results.latency", event | other


def pushed(second: int, records: int) -> tuple:
    event = {"run_id": "step", "second": T0 + 1000 * second, "acknowledged": records}
    return "results.generator", event


def cpu(second: int, cpu_seconds: float, pipeline: str = "spark", service: str = "runner") -> tuple:
    event = {"run_id": "step", "time": T0 + 1000 * second, "pipeline": pipeline}
    used = {"service": service, "cpu_seconds": cpu_seconds, "interval_s": 1.0}
    return "results.resources", event | used


def observe(
    *events: tuple, cores: int | None = 2, core_limit: float | None = None
) -> StepObservation:
    step = StepEvents("step")
    for topic, record in events:
        step.add(FigureColumns(topic, record))
    return step.observation(PLAN, LOAD, DRAINED, cores, core_limit=core_limit)


def test_the_median_of_each_second_of_output_counts_from_the_begin_of_the_measure_phase() -> None:
    (stage,) = observe(
        latency(0, {900: 5}, phase="warm_up"),
        latency(1, {100: 2, 300: 1}),
        latency(2, {200: 1}),
        latency(2, {400: 2}),  # counts of several events add up
        latency(5, {3000: 1}),  # after the phase, from an input in it
        latency(5, {9000: 9}, phase="cool_down"),
    ).stages
    assert stage.medians_ms == {0: 100, 1: 400, 4: 3000}
    # The phase ends at second 4; the last output is in second 5, so it ends by second 6.
    assert stage.drained_s == 2
    assert stage.missing == 1


def test_few_outputs_of_a_window_after_the_phase_are_no_second() -> None:
    """Of a key without a record in the cool-down: its last one waited for the window's end."""
    events = [latency(second, {1_100: 100}) for second in (1, 3)]
    (stage,) = observe(*events, latency(5, {6_500: 9})).stages
    assert stage.medians_ms == {0: 1_100, 2: 1_100}
    (stage,) = observe(*events, latency(5, {6_500: 10})).stages
    assert stage.medians_ms == {0: 1_100, 2: 1_100, 4: 6_500}


def test_the_queue_is_in_input_records() -> None:
    # 30 records in the measure phase and 15 expected outputs: an output stands for two records.
    (stage,) = observe(
        *(pushed(second, 10) for second in range(7)),
        latency(0, {100: 3}, phase="warm_up"),
        latency(1, {100: 1}, phase="warm_up"),
        latency(1, {100: 3}),
        latency(3, {100: 6}),
    ).stages
    # In: 10, 20, 30, 40 after each second. Out: 3, 7, 7, 13 outputs, for 6, 14, 14, 26 records.
    assert stage.seconds == (Second(0, 10, 6), Second(1, 10, 16), Second(2, 10, 14))


def test_processor_time_of_pipelines_is_a_share_of_all_cores_in_the_measure_phase() -> None:
    events = [cpu(0, 9.0), cpu(1, 1.0), cpu(2, 1.5), cpu(3, 0.5), cpu(4, 9.0), cpu(2, 9.0, "")]
    assert observe(*events).cpu_share == 0.5
    assert observe(*events, cores=None).cpu_share is None
    assert observe(cores=2).cpu_share is None


def test_a_pipeline_may_use_what_the_rest_of_the_machine_leaves() -> None:
    """0.6 of the 2 - 0.8 cores that are left while the machine uses 1.4."""
    pipeline = [cpu(second, 0.6) for second in (1, 2, 3)]
    machine = [cpu(second, 1.4, "", "machine") for second in (1, 2, 3)]
    assert observe(*pipeline, *machine).cpu_share == pytest.approx(0.5)
    assert observe(*pipeline, *machine, core_limit=0.8).cpu_share == pytest.approx(0.75)
    assert observe(*pipeline, *machine, core_limit=1.5).cpu_share == pytest.approx(0.5)
    full = [cpu(second, 2.0, "", "machine") for second in (1, 2, 3)]
    assert observe(*pipeline, *full).cpu_share == pytest.approx(1)


def test_processor_time_of_the_generator_is_told_per_record_of_the_measure_phase() -> None:
    events = [cpu(second, used, "", "generator") for second, used in ((0, 9.0), (1, 0.3), (3, 0.1))]
    records = [pushed(second, 1_000) for second in range(7)]
    observed = observe(*events, *records)
    assert observed.generator_us == pytest.approx(0.4e6 / 3_000)
    assert observation_detail(observed)["generator_us"] == observed.generator_us
    assert observe(*events).generator_us is observe(*records).generator_us is None


def test_a_rate_whose_latency_rises_without_end_is_given_up() -> None:
    step = StepEvents("step")
    for second in range(20):
        step.add(FigureColumns(*latency(second, {2_000 + 400 * second: 5}, phase="warm_up")))
    reason = "The median latency of join keeps rising."
    assert step.hopeless(0.03, 1_000) == step.hopeless(0.03, 1_000) == reason
    verdict = judged(step.unfinished((reason,), ""), Search(), final=False)
    assert verdict.refusals[0] == reason
    assert verdict.processed == pytest.approx(0.6)  # latency rises by what is left
    calm = StepEvents("step")
    for second in range(20):
        calm.add(FigureColumns(*latency(second, {2_000: 5}, phase="warm_up")))
    assert calm.hopeless(0.03, 1_000) == ""
    assert calm.unfinished(("The driver crashed.",), "") == StepObservation(
        (), trouble=("The driver crashed.",)
    )


def test_what_is_told_of_a_run_of_hours_fits_into_an_event() -> None:
    medians = dict.fromkeys(range(4 * 3600), 123.5) | {7: 2_000.0}
    told = observation_detail(StepObservation((StageObserved("join", medians),)))["stages"]["join"]
    assert (len(told["medians_ms"]), told["highest_median_ms"]) == (MOST_POINTS, 2_000)


def test_sends_that_failed_are_told() -> None:
    observed = observe()
    assert (observed.intended, observed.failed_sends) == (70, 1)


def test_other_runs_and_definitions_change_nothing() -> None:
    observed = observe(
        latency(1, {1: 1}, run_id="another"), latency(1, {1: 1}, definition="event_time")
    )
    silent = StageObserved("join", {}, tuple(Second(at, 0, 0.0) for at in range(3)), 0.0, 1)
    assert observed.stages == (silent,)
