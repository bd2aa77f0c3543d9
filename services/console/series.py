"""A series: the runs of one pipeline with increasing numbers of workers.

Each number of workers is a run preceded by a search. It uses the pipeline under a name of its own
and topics with as many partitions as the workload says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.protocol import Pipeline, RunRequest, Workload
from schemas.report import Report
from schemas.scaling import Scaled, Scaling
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.definitions.pipelines import with_workers


@dataclass(frozen=True)
class Part:
    """One run of a series; a command without a series has a single part.

    scaled: without the series name, which is only known once its first run is requested.
    """

    workload: Workload
    pipelines: tuple[Pipeline, ...]
    scaled: Scaled | None = None

    def of_series(self, request: RunRequest, before: Sequence[Report]) -> RunRequest:
        """The request of this part, given the reports of those before it: its search starts at the
        last rate found."""
        if self.scaled is None:
            return request
        first = before[0].scalability if before else None
        series = first.series if first else request.run_id
        rates = [report.search.rate_per_second for report in before]
        rate = next((rate for rate in reversed(rates) if rate), None)
        changes: dict[str, Any] = {"scaled": self.scaled.model_copy(update={"series": series})}
        if rate is not None:
            changes["workload"] = request.workload.at_rate(float(f"{rate:.4g}"))
        return request.model_copy(update=changes)


def scaling_of(workload: Workload, given: str | None) -> Workload:
    """The workload with the numbers of workers from --workers. Raises DefinitionError."""
    if given is None:
        return workload
    if workload.search is None:
        raise DefinitionError(
            f"--workers needs a workload with a search, such as scalability; {workload.name} has "
            "none."
        )
    try:
        workers = tuple(int(one) for one in given.split(","))
        scaling = workload.scaling or Scaling()
        scaling = Scaling(workers=workers, partitions_per_worker=scaling.partitions_per_worker)
    except ValueError as error:
        raise DefinitionError(
            f"--workers must be rising whole numbers such as 1,2,4, not {given!r}."
        ) from error
    return workload.model_copy(update={"scaling": scaling})


def parts_of(workload: Workload, pipelines: tuple[Pipeline, ...]) -> tuple[Part, ...]:
    """The runs of a command, in order. Raises DefinitionError if the pipeline does not support a
    number of workers."""
    if workload.scaling is None:
        return (Part(workload, pipelines),)
    if len(pipelines) != 1:
        raise DefinitionError("--workers needs one pipeline: --pipeline A.")
    parts = [_part(workload, pipelines[0], workers) for workers in workload.scaling.workers]
    names = [one.pipelines[0].name for one in parts]
    return tuple(_with_thresholds(part, pipelines[0].name, names) for part in parts)


def _with_thresholds(part: Part, pipeline: str, names: Sequence[str]) -> Part:
    """The part with its thresholds: those for the series' pipeline or for its own, without those
    for the others of the series. names: of the pipelines of all parts."""
    own = part.pipelines[0].name
    found = []
    for one in map(parse_threshold, part.workload.thresholds):
        if one.pipeline == pipeline:
            found.append(one.text.replace(pipeline, own, 1))
        elif one.pipeline == own or one.pipeline not in names:
            found.append(one.text)
    return replace(part, workload=part.workload.model_copy(update={"thresholds": tuple(found)}))


def _part(workload: Workload, pipeline: Pipeline, workers: int) -> Part:
    assert workload.scaling is not None
    partitions = workload.partitions or workers * workload.scaling.partitions_per_worker
    try:
        scaled = with_workers(pipeline, workers, f"{pipeline.name}-w{workers}-p{partitions}")
    except DefinitionError as error:
        raise DefinitionError(f"--workers: {error}") from error
    return Part(
        workload.model_copy(update={"partitions": partitions, "scaling": None}),
        (scaled,),
        Scaled(series="", pipeline=pipeline.name, workers=workers, partitions=partitions),
    )
