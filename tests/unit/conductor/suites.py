"""Suites with literal values."""

from schemas.suite import Pace, Step, Suite
from tests.unit.requests import a_request


def a_step(rate: float, every_s: int = 0) -> Step:
    """The workload `latency` at a rate on spark-realtime, one stage."""
    request = a_request()
    load = request.workload.load.model_copy(update={"rate_per_second": rate})
    return Step(
        workload=request.workload.model_copy(update={"load": load}),
        pipelines=request.pipelines,
        stages=("parse",),
        every_s=every_s,
    )


def a_suite(*steps: Step, **pace: float) -> Suite:
    """A suite of some steps."""
    return Suite(name="nightly", steps=steps, pace=Pace(**pace))
