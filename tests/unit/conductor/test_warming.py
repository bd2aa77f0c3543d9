"""Whether pipelines are steady, from the events of a run."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from schemas.events import FigureColumns
from schemas.load import Fluctuating, PeriodicBurst, RampUp
from schemas.protocol import Interleaving, PhasePlan, Phases, RunRequest
from schemas.workload import Kill
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from services.conductor.warming import MOST_SECONDS, Steadiness, Warming
from tests.unit.conductor.good_run import STAGES
from tests.unit.requests import a_request, an_event

pytestmark = pytest.mark.unit
SECONDS = 12  # three blocks of four seconds


def event(stage: str, second: int, *latencies: int) -> dict[str, object]:
    found = an_event(pipeline="spark-realtime", stage=stage, definition="latest", phase="warm_up",
                     second=1000 * second, latencies_ms=list(latencies),
                     counts=[10] * len(latencies))  # fmt: skip
    return found | {"time": 1000 * second}


def usage(second: int, cores: float, jit: float | None = None) -> dict[str, object]:
    """A sample that ends with the second."""
    found = an_event(service="p", pipeline="spark-realtime", interval_s=1.0, cpu_seconds=cores,
                     jit_seconds=jit)  # fmt: skip
    return found | {"time": 1000 * second + 1000}


def sent(second: int, records: int) -> dict[str, object]:
    return an_event(phase="measure", second=1000 * second, acknowledged=records,
                    send_delays_us=[], counts=[])  # fmt: skip


def warmed(
    medians: Iterable[int],
    cores: Iterable[float] = (),
    tail: int = 5,
    jit: float | None = None,
    request: RunRequest | None = None,
    rate: int = 400,
) -> Warming:
    """Stages that all publish one median per second."""
    warming = Warming(request or a_request())
    for second, median in enumerate(medians):
        for stage in STAGES:
            warming.add(
                FigureColumns(
                    "results.latency", event(stage, second, median, median, median + tail)
                )
            )
        warming.add(FigureColumns("results.generator", sent(second, rate)))
    for second, used in enumerate(cores):
        warming.add(FigureColumns("results.resources", usage(second, used, jit)))
    return warming


def changed(**fields: Any) -> RunRequest:
    """A request of a workload with other fields."""
    request = a_request()
    workload = request.workload.model_copy(update=fields)
    return request.model_copy(update={"workload": workload})


def test_a_level_is_steady() -> None:
    assert warmed([6, 7, 6] * 4).look(1000 * SECONDS) == Steadiness(True)


def test_a_median_that_falls_is_not_steady_and_is_told() -> None:
    found = warmed([20] * 4 + [14] * 4 + [10] * 4).look(1000 * SECONDS)
    assert not found.steady
    assert found.moving[0] == "spark-realtime ingest: p50 fell by 10 ms in 8 s, from 20 to 10 ms"
    assert found.still[0] == "p50 of ingest still falls, 20 → 10 ms"
    assert len(found.moving) == len(STAGES)


def test_a_median_that_rises_is_not_steady_either() -> None:
    found = warmed([10] * 8 + [14] * 4).look(1000 * SECONDS)
    assert found.still[0] == "p50 of ingest still rises, 10 → 14 ms"
    assert found.steady is False


def test_only_the_last_blocks_count() -> None:
    warming = warmed([90] * 20 + [6] * 12)
    assert warming.look(1000 * 24).steady is False
    assert warming.look(1000 * 32).steady is True


def test_blocks_that_differ_by_chance_are_steady_after_half_a_minute() -> None:
    """Medians of a busy machine, in blocks up to 4 ms apart; then the same after a fall."""
    noise = [4, 9, 7, 5, 8, 8, 5, 4, 5, 9, 9, 8, 4, 4, 7, 5, 9, 8, 9, 8, 8, 9, 4, 5, 5, 4,
             9, 8, 8, 9]  # fmt: skip
    fall = [40, 35, 31, 28, 25, 22, 20, 18, 16, 15, 14, 13, 12, 11, 10, 10]
    assert warmed(noise).look(30_000).steady is True
    assert warmed(noise[4:]).look(26_000).steady is False
    assert warmed(fall + noise[16:]).look(30_000).steady is False


def test_a_tail_that_falls_is_not_steady() -> None:
    warming = Warming(a_request())
    for second in range(SECONDS):
        for stage in STAGES:
            slow = (40, 25, 12)[second // 4]
            warming.add(FigureColumns("results.latency", event(stage, second, 5, 5, slow)))
    found = warming.look(1000 * SECONDS)
    assert found.moving[0] == "spark-realtime ingest: p95 fell by 28 ms in 8 s, from 40 to 12 ms"


def test_the_processor_time_of_a_record_that_falls_is_not_steady() -> None:
    cores = [1.8] * 4 + [1.5] * 4 + [1.2] * 4
    found = warmed([6] * 12, cores).look(1000 * SECONDS)
    assert found.moving == (
        "spark-realtime: CPU time fell by 1500 in 8 s, "
        "from 4500 to 3000 core-seconds per million records",
    )
    assert warmed([6] * 12, [1.2] * 12).look(1000 * SECONDS).steady


def beside_a_generator(cores: Sequence[float], producer: str = "someone") -> Steadiness:
    """A warm-up in which the pipeline's processor time falls by a third. cores: used by the
    generator, in each block."""
    warming = warmed([6] * SECONDS, [1.8] * 4 + [1.5] * 4 + [1.2] * 4)
    for second in range(SECONDS):
        used = usage(second, cores[second // 4])
        generator = {"service": "generator", "pipeline": "", "producer": producer}
        warming.add(FigureColumns("results.resources", used | generator))
    return warming.look(1000 * SECONDS)


@pytest.mark.parametrize("cores", [(0.18, 0.15, 0.12), (0.18, 0.15, 0.134), (0.18, 0.15, 0.1)])
def test_processor_time_that_falls_like_the_generators_is_steady(cores: Sequence[float]) -> None:
    assert beside_a_generator(cores) == Steadiness(
        True,
        of_machine=(
            "spark-realtime: CPU time fell by 1500 in 8 s, "
            "from 4500 to 3000 core-seconds per million records",
        ),
    )


@pytest.mark.parametrize("cores", [(0.18, 0.18, 0.18), (0.18, 0.17, 0.15), (0.1, 0.15, 0.2)])
def test_processor_time_that_falls_more_than_the_generators_is_not(cores: Sequence[float]) -> None:
    assert beside_a_generator(cores).steady is False


def test_a_generator_on_another_machine_explains_nothing() -> None:
    assert beside_a_generator((0.18, 0.15, 0.12), "another collector").steady is False


def test_processor_time_that_falls_with_the_rate_is_steady() -> None:
    warming = warmed([6] * 12, [1.8] * 4 + [1.5] * 4 + [1.2] * 4, rate=0)
    for second in range(SECONDS):
        warming.add(FigureColumns("results.generator", sent(second, (600, 500, 400)[second // 4])))
    assert warming.look(1000 * SECONDS).steady


def test_compilers_that_still_work_are_told() -> None:
    found = warmed([6] * 12, [1.0] * 12, jit=0.24).look(1000 * SECONDS)
    assert found == Steadiness(
        False,
        ("spark-realtime: compilers took 24% of its CPU time",),
        ("compilers of spark-realtime still take 24% of its CPU time",),
    )
    assert warmed([6] * 12, [1.0] * 12, jit=0.15).look(1000 * SECONDS).steady


def test_too_little_is_not_known_to_be_steady() -> None:
    found = warmed([6] * 12).look(1000 * 8)
    assert found.steady is None
    assert found.unknown.startswith("there are too few seconds with outputs of spark-realtime ing")
    warming = Warming(a_request())
    for second in range(SECONDS):
        warming.add(FigureColumns("results.latency", event("join", second, 6)))
    assert warming.look(1000 * SECONDS).steady is None


def test_blocks_hold_a_whole_slide_of_every_window_and_a_whole_period_of_the_load() -> None:
    request = a_request()
    longer = request.domain.resolved({"tumbling_s": 7, "sliding_s": 21})
    assert Warming(request.model_copy(update={"domain": longer})).block_s == 7
    waves = Fluctuating(rate_per_second=400, period_s=9)
    assert Warming(changed(load=waves)).block_s == 18


def test_pipelines_in_turns_are_judged_by_their_own_turns() -> None:
    """Blocks of six seconds; outside its turn a pipeline publishes nothing and uses little."""
    turns = Interleaving(block_s=6, order=("a", "b", "b", "a"))
    request = a_request("a", "b").model_copy(update={"interleaved": turns})
    for cost, steady in ((1.0, True), (0.985, False)):
        warming = Warming(request)
        assert warming.block_s == 6
        for second in range(120):
            mine = turns.turn(second)
            for stage in STAGES:
                warming.add(
                    FigureColumns("results.latency", event(stage, second, 6) | {"pipeline": mine})
                )
            for name in "ab":
                used = cost**second if name == mine else 0.05
                warming.add(
                    FigureColumns("results.resources", usage(second, used) | {"pipeline": name})
                )
            warming.add(FigureColumns("results.generator", sent(second, 400)))
        found = warming.conclude(60_000, 120_000)
        assert found.steady is steady
        assert len(found.moving) == (0 if steady else 2)


@pytest.mark.parametrize("block_s", [6, 36, 44])
@pytest.mark.parametrize("falls", [False, True])
def test_pipelines_in_long_turns_are_found_steady_before_the_warm_up_ends(
    block_s: int, falls: bool
) -> None:
    """Both pipelines are at one level, or the median of the second falls by 3 % a second."""
    turns = Interleaving(block_s=block_s, first_s=180 % (4 * block_s), order=("a", "b", "b", "a"))
    request = a_request("a", "b").model_copy(update={"interleaved": turns})
    warming, of_b, steady_s = Warming(request), 1000.0, []
    for second in range(170):
        mine = turns.turn(second)
        of_b *= 0.97 if falls and mine == "b" else 1
        median = round(of_b) if mine == "b" else 6
        for stage in STAGES:
            warming.add(
                FigureColumns("results.latency", event(stage, second, median) | {"pipeline": mine})
            )
        if warming.look(1000 * (second + 1)).steady:
            steady_s.append(second)
    assert bool(steady_s) is not falls
    assert all(second > block_s for second in steady_s)  # both have had a turn


def test_a_stage_with_rare_outputs_is_judged_by_half_a_minute() -> None:
    """An output every five seconds: a block of four seconds may have none."""
    rare = Warming(a_request())
    for second in range(0, 40, 5):
        for stage in STAGES:
            rare.add(FigureColumns("results.latency", event(stage, second, 6)))
    assert rare.look(28_000).steady is None
    assert rare.look(40_000).steady is True


def test_what_is_kept_is_bounded() -> None:
    seconds = 3 * MOST_SECONDS
    warming = warmed([6] * seconds, [1.0] * seconds)
    levels = warming._levels["spark-realtime", "join"]
    assert len(levels._p50) <= MOST_SECONDS
    assert len(levels._open) <= 11
    assert len(warming._used["spark-realtime"].cpu_s) <= MOST_SECONDS
    assert warming.look(1000 * seconds).steady
    assert warming.conclude(0, 1000 * seconds).steady


def concluded(medians: Sequence[int], begin_s: int, end_s: int, **fields: Any) -> Steadiness:
    return warmed(medians, request=changed(**fields)).conclude(1000 * begin_s, 1000 * end_s)


# Typical of the first run of a JVM: the median falls during the measurement.
FALLING = [30, 26, 24, 23, 22, 22, 21, 20, 20, 20, 20, 19, 18, 16, 15, 14, 13, 12, 11, 10,
           9, 8, 8, 7, 7, 6, 6, 6, 7, 6, 6, 6, 6, 7, 6, 6, 6, 6, 6, 6]  # fmt: skip


def test_a_median_that_falls_while_it_is_measured_is_not_steady() -> None:
    found = concluded(FALLING, 10, 40)
    assert found.steady is False
    assert found.moving[0] == "spark-realtime ingest: p50 fell by 8.5 ms in 20 s, from 14.5 to 6 ms"


def test_a_measured_phase_at_one_level_is_steady_whatever_was_before() -> None:
    assert concluded(FALLING, 25, 40).steady is True


def test_a_measured_phase_that_is_too_short_is_judged_by_the_warm_up_before_it() -> None:
    found = concluded(FALLING, 19, 22)
    assert found.steady is False
    assert found.moving[0] == "spark-realtime ingest: p50 fell by 7.5 ms in 8 s, from 20 to 12.5 ms"
    assert concluded(FALLING, 37, 40).steady is True
    found = concluded(FALLING, 2, 5)
    assert (found.steady, found.moving) == (None, ())
    assert found.unknown.startswith("there are too few seconds with outputs of spark-realtime")


def test_a_phase_in_which_something_is_killed_is_judged_by_the_warm_up() -> None:
    kills = (Kill(target="driver", at_s=3),)
    late = [6] * 20 + [90] * 20
    assert concluded(late, 15, 40).steady is False
    assert concluded(late, 15, 40, kills=kills).steady is True
    assert concluded(late, 3, 40, kills=kills) == Steadiness(
        None, unknown="a process is killed in the measured phase"
    )


def test_a_load_that_changes_says_why_nothing_is_known() -> None:
    ramp = RampUp(rate_per_second=400, for_s=30)
    found = concluded(FALLING, 2, 40, load=ramp)
    assert found == Steadiness(None, unknown="the load is neither constant nor periodic")


def test_what_repeats_itself_is_compared_as_a_whole() -> None:
    """A burst every ten seconds, during which the median is high for two; then each is higher."""
    bursts = PeriodicBurst(rate_per_second=400, burst_records=9, period_s=10)
    level = ([90, 60] + [6] * 8) * 6
    assert concluded(level, 0, 60, load=bursts).steady is True
    rising = [value + 8 * (second // 10) for second, value in enumerate(level)]
    assert concluded(rising, 0, 60, load=bursts).steady is False


def test_a_run_that_ends_early_is_judged_as_far_as_it_got() -> None:
    assert concluded([6] * 10 + FALLING, 10, 600).steady is False
    assert concluded([6] * 40, 10, 600).steady is True


def test_a_run_tells_whether_it_was_steady() -> None:
    request = a_request()
    state = RunState(request)
    state.begin_measuring(PhasePlan(load_start_ms=0, phases=Phases(warm_up_s=10, measure_s=30)))
    for second, median in enumerate(FALLING):
        for stage in STAGES:
            state.add(FigureColumns("results.latency", event(stage, second, median)))
    told = conclude(state).detail["warm_up"]
    assert (told["steady"], told["seconds"], told["until_steady"]) == (False, 10, False)
    assert told["moving"][0] == (
        "spark-realtime ingest: p50 fell by 8.5 ms in 20 s, from 14.5 to 6 ms"
    )
    assert told["unknown"] == ""


def test_a_run_that_was_not_measured_says_so() -> None:
    told = conclude(RunState(a_request())).detail["warm_up"]
    assert (told["steady"], told["unknown"]) == (None, "nothing was measured")
