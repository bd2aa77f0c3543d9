"""Steps of a search for a pipeline with long batches."""

import pytest

from analysis.steadiness import LEAST_VALUES
from schemas.observation import StageObserved, StepObservation
from schemas.protocol import WARMING, RunRequest
from services.conductor.search.bisection import SoFar
from tests.unit.conductor.test_searching import CAPACITY_PER_SECOND, Runs, search_after
from tests.unit.requests import RUN_ID

pytestmark = pytest.mark.unit


class InBatches(Runs):
    """Runs of a pipeline that publishes every three seconds. requests: of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[RunRequest] = []

    def observe(self, request: RunRequest) -> StepObservation:
        self.requests.append(request)
        rate = request.workload.load.rate_per_second
        seconds = range(1, request.workload.phases.measure_s, 3)
        latency = 2_000.0 if rate <= CAPACITY_PER_SECOND else 20_000.0
        return StepObservation((StageObserved("parse", dict.fromkeys(seconds, latency)),), 1)


def test_steps_of_a_pipeline_with_long_batches_last_until_a_trend_can_be_seen() -> None:
    runs = InBatches()
    search_after(SoFar(), runs=runs)
    first, second, *others = [
        len(runs.observe(request).stages[0].medians_ms)
        for request in tuple(runs.requests)
        if not request.run_id.endswith(WARMING)
    ]
    assert first < LEAST_VALUES <= second
    assert min(others) >= LEAST_VALUES
    assert max(each.workload.phases.measure_s for each in runs.requests) <= 60


def test_steps_are_long_beside_the_latency_of_a_rate_that_is_sustained() -> None:
    """A batch of three seconds may be published in three seconds, each with a median."""

    class Slow(InBatches):
        def observe(self, request: RunRequest) -> StepObservation:
            self.requests.append(request)
            is_kept_up = request.workload.load.rate_per_second <= CAPACITY_PER_SECOND
            seconds = range(request.workload.phases.measure_s)
            medians = dict.fromkeys(seconds, 3_500.0 if is_kept_up else 20_000.0)
            return StepObservation((StageObserved("parse", medians),), 1)

    runs = Slow()
    search_after(SoFar(), runs=runs)
    lengths = [
        each.workload.phases.measure_s
        for each in runs.requests
        if not each.run_id.endswith(WARMING) and "-step-" in each.run_id
    ]
    assert lengths[:3] == [15, 21, 21]
    assert max(lengths) == 60
    run = runs.requests[-1]
    assert run.run_id == RUN_ID
    assert min(run.workload.phases.warm_up_s, run.workload.phases.measure_s) >= 21
