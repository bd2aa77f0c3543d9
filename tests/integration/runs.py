"""Plans and phases of runs, for tests of the generator."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemas.load import Constant
from schemas.protocol import PhasePlan, Phases, Pipeline, RunPlan, RunRequest, Workload
from services.definitions.domains import load_domain
from services.runtime.settings import ServiceSettings
from tests.integration.service_process import Reader

PHASES = Phases(warm_up_s=2, measure_s=3, cool_down_s=3)
BRIEF = Phases(warm_up_s=1, measure_s=2, cool_down_s=3)


def run_plan(run_id: str, rate: float = 0, seed: int = 0, **fields: Any) -> RunPlan:
    """The plan of a run at a constant rate, or with the workload's `fields`."""
    fields = {"load": Constant(rate_per_second=rate)} | fields if rate else fields
    workload = Workload(name="test", summary="A short load.", **{"phases": PHASES} | fields)
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    domain = load_domain(workload.domain).spec
    request = RunRequest(
        run_id=run_id,
        workload=workload,
        pipelines=(pipeline,),
        stages=domain.stage_names,
        seed=seed,
        domain=domain.resolved(workload.windows),
    )
    return RunPlan(request=request, start_offsets={})


def next_phases(phases: Phases = PHASES) -> PhasePlan:
    """Phases that start in about two seconds."""
    return PhasePlan(load_start_ms=(int(time.time()) + 2) * 1000, phases=phases)


@contextmanager
def readers(settings: ServiceSettings, *topics: str) -> Iterator[list[Reader]]:
    """A reader of each topic."""
    found = [Reader(settings, topic) for topic in topics]
    try:
        yield found
    finally:
        for reader in found:
            reader.close()
