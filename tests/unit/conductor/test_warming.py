"""Whether pipelines are steady, from what the bus says while they warm up."""

from collections.abc import Iterable

import pytest

from schemas.protocol import PhasePlan
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from services.conductor.warming import Steadiness, Warming
from tests.unit.conductor.good_run import STAGES
from tests.unit.requests import a_request, an_event

pytestmark = pytest.mark.unit
SECONDS = 12  # three blocks of four seconds


def event(stage: str, second: int, *latencies: int) -> dict[str, object]:
    found = an_event(pipeline="spark-realtime", stage=stage, definition="latest", phase="warm_up",
                     second=1000 * second, latencies_ms=list(latencies),
                     counts=[10] * len(latencies))  # fmt: skip
    return found | {"time": 1000 * second}


def usage(second: int, cores: float) -> dict[str, object]:
    found = an_event(service="p", pipeline="spark-realtime", interval_s=1.0, cpu_seconds=cores)
    return found | {"time": 1000 * second}


def warmed(medians: Iterable[int], cores: Iterable[float] = (), tail: int = 5) -> Warming:
    """Stages that all publish one median a second."""
    warming = Warming(a_request())
    for second, median in enumerate(medians):
        for stage in STAGES:
            warming.add("results.latency", event(stage, second, median, median, median + tail))
    for second, used in enumerate(cores):
        warming.add("results.resources", usage(second, used))
    return warming


def test_a_level_is_steady() -> None:
    assert warmed([6, 7, 6] * 4).look(1000 * SECONDS) == Steadiness(True)


def test_a_median_that_falls_is_not_steady_and_is_told() -> None:
    found = warmed([20] * 4 + [14] * 4 + [10] * 4).look(1000 * SECONDS)
    assert not found.steady
    assert found.moving[0] == "spark-realtime ingest: p50 went from 20 to 10 ms"
    assert len(found.moving) == len(STAGES)


def test_a_median_that_rises_is_not_steady_either() -> None:
    assert warmed([10] * 8 + [14] * 4).look(1000 * SECONDS).steady is False


def test_only_the_last_blocks_count() -> None:
    warming = warmed([90] * 20 + [6] * 12)
    assert warming.look(1000 * 24).steady is False
    assert warming.look(1000 * 32).steady is True


def test_a_tail_that_falls_is_not_steady() -> None:
    warming = Warming(a_request())
    for second in range(SECONDS):
        for stage in STAGES:
            slow = (40, 25, 12)[second // 4]
            warming.add("results.latency", event(stage, second, 5, 5, slow))
    found = warming.look(1000 * SECONDS)
    assert found.moving[0] == "spark-realtime ingest: p95 fell from 40 to 12 ms"


def test_processor_time_that_falls_is_not_steady() -> None:
    cores = [1.8] * 4 + [1.5] * 4 + [1.2] * 4
    found = warmed([6] * 12, cores).look(1000 * SECONDS)
    assert found.moving == ("spark-realtime: its processor time fell from 1.80 to 1.20 cores",)
    assert warmed([6] * 12, [1.2] * 12).look(1000 * SECONDS).steady


def test_too_little_is_not_known_to_be_steady() -> None:
    assert warmed([6] * 12).look(1000 * 8).steady is None
    warming = warmed([6] * 12)
    warming._latencies["spark-realtime", "join"].clear()
    assert warming.look(1000 * SECONDS).steady is None


def test_blocks_hold_a_whole_slide_of_every_window() -> None:
    request = a_request()
    assert request.domain is not None
    longer = request.domain.resolved({"tumbling_s": 7, "sliding_s": 21})
    assert Warming(request.model_copy(update={"domain": longer})).block_s == 7


def test_what_is_kept_is_bounded() -> None:
    warming = warmed([6] * 4_000, [1.0] * 4_000)
    assert len(warming._latencies["spark-realtime", "join"]) <= 50
    assert len(warming._used["spark-realtime"]) <= 50
    assert warming.look(4_000_000).steady


def test_a_run_tells_whether_it_was_steady_when_it_was_measured() -> None:
    request = a_request()
    state = RunState(request)
    phases = PhasePlan(load_start_ms=0, phases=request.workload.phases)
    state.begin_measuring(phases.model_copy(update={"load_start_ms": 2_000}))
    for second in range(40):
        for stage in STAGES:
            # What comes in the measured phase changes nothing.
            state.add("results.latency", event(stage, second, 30 - second if second < 12 else 900))
    told = conclude(state).detail["warm_up"]
    assert (told["steady"], told["seconds"], told["until_steady"]) == (False, 10, False)
    assert told["moving"][0] == "spark-realtime ingest: p50 went from 28 to 20 ms"
