"""Requests of new runs, as the console and a suite make them."""

import secrets
import time
from collections.abc import Sequence

from schemas.protocol import Pipeline, RunRequest, Stage, Workload
from schemas.suite import SuiteRun
from services.runtime.environment import environment


def new_request(
    workload: Workload,
    pipelines: Sequence[Pipeline],
    stages: tuple[Stage, ...],
    suite: SuiteRun | None = None,
) -> RunRequest:
    """The request of a new run: a run id that sorts by time, a seed, and the environment."""
    return RunRequest(
        run_id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}",
        workload=workload,
        pipelines=tuple(pipelines),
        stages=stages,
        seed=secrets.randbelow(2**31),
        environment=environment(),
        suite=suite,
    )
