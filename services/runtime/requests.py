"""Requests of new runs, as the console and a suite make them."""

import secrets
import time
from collections.abc import Sequence

from pydantic import ValidationError

from schemas.domain import DomainSpec
from schemas.mistakes import first_mistake
from schemas.protocol import Pipeline, RunRequest, Stage, Workload
from schemas.suite import SuiteRun
from services.runtime.definitions import DefinitionError
from services.runtime.environment import environment


def new_request(
    workload: Workload,
    pipelines: Sequence[Pipeline],
    stages: tuple[Stage, ...],
    domain: DomainSpec,
    suite: SuiteRun | None = None,
) -> RunRequest:
    """The request of a new run: a run id that sorts by time, a seed, and the environment.

    stages: empty: those of the workload, or else all of the domain. Raises DefinitionError when the
    stages or the workload's windows are none of the domain.
    """
    stages = stages or workload.stages or domain.stage_names
    unknown = [stage for stage in stages if stage not in domain.stage_names]
    if unknown:
        raise DefinitionError(
            f"The domain {domain.name} has no stage {unknown[0]!r}; it has: "
            f"{', '.join(domain.stage_names)}."
        )
    try:
        resolved = domain.resolved(workload.windows)
    except ValidationError as error:
        raise DefinitionError(f"workload {workload.name}: {first_mistake(error)}.") from error
    except ValueError as error:
        raise DefinitionError(f"workload {workload.name}: {error}.") from error
    return RunRequest(
        run_id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}",
        workload=workload,
        pipelines=tuple(pipelines),
        stages=stages,
        seed=secrets.randbelow(2**31),
        environment=environment(),
        suite=suite,
        domain=resolved,
        published={
            one.name: tuple(stage for stage in stages if stage in one.stages) for one in pipelines
        },
    )
