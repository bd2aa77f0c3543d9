"""The floor of a run: latency of a plain copy on the same stack, measured before the run.

It is a separate run, `<run>-floor`, on the pipeline `floor`, which copies the records of one stage
at a rate that any machine sustains. A failed floor does not end the run.
"""

from collections.abc import Callable

import structlog

from schemas.domain import DomainSpec
from schemas.events import RunRequested
from schemas.load import Constant
from schemas.pipeline import Pipeline
from schemas.protocol import Phases, RunRequest, floor_run_id
from schemas.validation_errors import DefinitionError
from services.conductor.run import Run
from services.conductor.settings import ConductorSettings
from services.definitions.pipelines import load_pipeline
from services.runtime.events import Events

log = structlog.get_logger()
PIPELINE = "floor"
KINDS = ("copy", "decode")
MOST_PER_SECOND = 1_000.0
WARM_UP_S, COOL_DOWN_S, KEEP_UP_S = 4, 3, 4


def measure_floor(
    request: RunRequest,
    settings: ConductorSettings,
    events: Events,
    interrupted: Callable[[], str],
) -> None:
    """Measure the floor and conclude it."""
    try:
        floor = floor_request(request, load_pipeline(PIPELINE))
    except DefinitionError as error:
        log.warning("no_floor", run_id=request.run_id, reason=str(error))
        return
    events.publish(RunRequested(run_id=floor.run_id, request=floor))
    Run(floor, settings, events, interrupted).execute()


def floor_request(request: RunRequest, pipeline: Pipeline) -> RunRequest:
    """The run that measures the floor of another. Raises DefinitionError for a domain without a
    stage of kind copy."""
    stage = _copied(request.domain)
    workload = request.workload
    rate = min(MOST_PER_SECOND, workload.load.peak_per_second or MOST_PER_SECOND)
    lenient = {"must_be_steady": False, "must_be_undisturbed": False}  # it is too short for these
    changes = {
        "load": Constant(rate_per_second=rate),
        "phases": Phases(warm_up_s=WARM_UP_S, measure_s=workload.floor_s, cool_down_s=COOL_DOWN_S),
        "stages": (stage,),
        "thresholds": (),
        "kills": (),
        "search": None,
        "scaling": None,
        "partitions": None,
        "pipelines_start_s": 0,
        "keep_up_s": KEEP_UP_S,
        "floor_s": 0,
        "validity": workload.validity.model_copy(update=lenient),
    }
    return request.model_copy(
        update={
            "run_id": floor_run_id(request.run_id),
            "step_of": request.run_id,
            "workload": workload.model_copy(update=changes),
            "pipelines": (pipeline,),
            "stages": (stage,),
            "published": {pipeline.name: (stage,)},
            "topologies": {pipeline.name: "independent"},
            "interleaved": None,
            "scaled": None,
        }
    )


def _copied(domain: DomainSpec) -> str:
    for kind in KINDS:
        for stage in domain.stages:
            if stage.kind == kind and stage.reads[0] not in domain.stage_names:
                return stage.name
    raise DefinitionError("The domain has no stage that a plain copy can publish.")
