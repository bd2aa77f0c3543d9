"""The cost of a run, and the cost of observing it."""

import pytest

from analysis.costs import (
    MOST_PROCESSES,
    core_seconds_per_million_records,
    cores_by_process,
    cost_of_observing,
    scaled_bounds,
    used_by_others,
)
from schemas.report import Observing, Resources

pytestmark = pytest.mark.unit


def cores(**services: float) -> dict[str, Resources]:
    return {name: Resources(cpu_cores=used) for name, used in services.items()}


def test_the_cost_of_a_pipeline_is_per_record_that_came_in() -> None:
    assert core_seconds_per_million_records(27.0, 12_000, machine_s=29.0, measured_s=30.0) == 2250.0
    assert core_seconds_per_million_records(27.0, 0, machine_s=29.0, measured_s=30.0) is None


def test_what_a_pipeline_used_when_nobody_looked_counts_too() -> None:
    assert core_seconds_per_million_records(27.0, 12_000, machine_s=20.0, measured_s=30.0) == 3375.0
    assert core_seconds_per_million_records(27.0, 12_000, machine_s=0.0, measured_s=30.0) == 2250.0


def test_a_cost_has_the_interval_of_the_cores_that_were_used() -> None:
    # 2 ± 0.515 cores (tests of the intervals), and 100 for the 2.
    low, high = scaled_bounds(100.0, 2.0, [1.0, 3.0] * 10) or (0, 0)
    assert (low, high) == (pytest.approx(74.3, abs=0.2), pytest.approx(125.7, abs=0.2))
    assert scaled_bounds(100.0, 2.0, [1.0]) is None
    assert scaled_bounds(None, 2.0, [1.0, 3.0] * 10) is None


def test_observing_is_all_but_the_broker() -> None:
    own = cores(store=0.125, evaluator=0.125, generator=0.25)
    found = cost_of_observing(own | cores(kafka=0.5, machine=1.0))
    assert found == Observing(cpu_cores=0.5, share=0.5)
    assert cost_of_observing(own) == Observing(cpu_cores=0.5, share=None)


def test_nobody_says_what_observing_took_who_did_not_see_the_observers() -> None:
    assert cost_of_observing(cores(collector=0.1, machine=1.0)) == Observing()
    assert cost_of_observing({}) == Observing()


def test_others_use_what_is_left_of_the_machine() -> None:
    assert used_by_others(cores(kafka=0.5, pipeline=0.75, machine=1.5)) == 0.25
    assert used_by_others(cores(kafka=0.5) | {"silent": Resources()} | cores(machine=0.25)) == 0.0
    assert used_by_others(cores(kafka=0.5)) is None
    in_containers = {"collector": 0.25, "runner": 0.25, "sampler": 0.25, "pipeline": 0.75}
    assert used_by_others(cores(machine=1.75, **in_containers)) is None


def test_the_cores_of_each_process_are_those_over_the_whole_time() -> None:
    cpu_s = {f"python {n}": float(n) for n in range(10)} | {"others": 7.0}
    found = cores_by_process(cpu_s, 20.0)
    assert found is not None
    assert list(found.items())[:2] == [("python 9", 0.45), ("python 8", 0.4)]
    assert len(found) == MOST_PROCESSES + 1
    assert found["others"] == (0 + 1 + 7) / 20
    assert cores_by_process({}, 20.0) is None
    assert cores_by_process(cpu_s, 0.0) is None
