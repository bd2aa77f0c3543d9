"""History of every figure: one series per workload, pipeline, stage, metric. Pure.

Runs belong to one series if they had the same domain, load, transport, content, faults, windows,
kills, stages, concurrent pipelines, turns and search parameters; settings, versions and machines
may differ, because changes of these are to be detected. Only valid runs that were not search steps
count, and only steady ones, unless most of a series were not steady. A search has no rate of its
own: its initial rate does not distinguish series.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from analysis.comparability import LOAD, Request, domain_of
from schemas.threshold import SUSTAINABLE_RATE
from schemas.workload import DEFAULT_DOMAIN

TYPICAL = "middle_ms"  # mean of the middle half: resolves less than a millisecond, ignores stalls
LATENCIES = (TYPICAL, "p99_ms")
METRICS = (*LATENCIES, SUSTAINABLE_RATE)
HIGHER_IS_BETTER = (SUSTAINABLE_RATE,)


@dataclass(frozen=True)
class Point:
    """One run in a series. request: its whole request as JSON. at_ms: time of the request.
    others_cores: mean cores used by other processes meanwhile; generator_us: CPU time of the
    generator per record, microseconds. These and is_steady are None if unknown. engine_version: as
    the engine reported it, or empty."""

    run_id: str
    value: float
    request: Request
    others_cores: float | None = None
    at_ms: int = 0
    is_steady: bool | None = None
    generator_us: float | None = None
    engine_version: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of a run."""

    run_id: str
    pipeline: str
    stage: str
    metric: str
    value: float


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run beside its figures; see Point. engine_versions: by pipeline."""

    run_id: str
    request: Request
    at_ms: int = 0
    is_steady: bool | None = None
    others_cores: float | None = None
    generator_us: float | None = None
    engine_versions: Mapping[str, str] = field(default_factory=dict)

    def point(self, figure: Figure) -> Point:
        """The run in the series of a figure."""
        return Point(
            self.run_id,
            float(figure.value),
            self.request,
            self.others_cores,
            self.at_ms,
            self.is_steady,
            self.generator_us,
            self.engine_versions.get(figure.pipeline, ""),
        )


@dataclass(frozen=True)
class Series:
    """The history of one figure, oldest run first. workload: name, with its rate if constant;
    metric: `middle_ms` or `p99_ms` of `latest`, or for a search `sustainable_rate_per_second`,
    whose stage is all the stages that ran."""

    workload: str
    pipeline: str
    stage: str
    metric: str
    points: tuple[Point, ...]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Display key of a series; loads may still differ in details."""
        return (self.workload, self.pipeline, self.stage, self.metric)


def assemble(runs: Iterable[RunFacts], figures: Iterable[Figure]) -> list[Series]:
    """Series of figures of runs, oldest first, in the order of their first runs."""
    by_run: defaultdict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_run[figure.run_id].append(figure)
    points: dict[tuple[str, str, str, str, str], list[Point]] = {}
    for run in runs:
        is_search = bool(run.request["workload"].get("search"))
        for figure in by_run[run.run_id]:
            if is_search and figure.metric != SUSTAINABLE_RATE:
                continue  # its run has the rate found, which differs
            place = (figure.pipeline, figure.stage, figure.metric)
            key = (alike(run.request), label(run.request), *place)
            points.setdefault(key, []).append(run.point(figure))
    return [
        Series(workload, pipeline, stage, metric, steady_ones(of_series))
        for (_alike, workload, pipeline, stage, metric), of_series in points.items()
    ]


def steady_ones(points: list[Point]) -> tuple[Point, ...]:
    """The runs not found unsteady, if these are the majority; else all."""
    result = tuple(point for point in points if point.is_steady is not False)
    return result if 2 * len(result) > len(points) else tuple(points)


def alike(request: Request) -> str:
    """Equal for comparable runs."""
    workload = request["workload"]
    load = dict(workload.get("load", {}))  # a watch has no load
    if _finds_rate(workload):
        load.pop("rate_per_second", None)  # the initial rate, not what is measured
    identity = [workload["name"], load, windows_of(request), *(workload.get(name) for name in LOAD)]
    identity += [
        workload.get("transport", "kafka"),
        (request.get("interleaved") or {}).get("block_s"),
    ]
    pipelines = sorted(pipeline["name"] for pipeline in request["pipelines"])
    return json.dumps([identity, domain_of(request), pipelines, request["stages"]], sort_keys=True)


def _finds_rate(workload: Request) -> bool:
    """Whether its rate is a result of a search."""
    return bool(workload.get("search") or workload.get("sustainable_share"))


def windows_of(request: Request) -> dict[str, int]:
    """Window sizes of all stages in seconds, by `<stage>_s`: of the domain; a watch has
    none."""
    stages = request["domain"]["stages"] if "domain" in request else ()
    windowed = (stage for stage in stages if stage.get("window"))
    return {f"{stage['name']}_s": stage["window"]["size_s"] for stage in windowed}


def label(request: Request) -> str:
    """Display name of the workload: its name, its rate if it has one, and its domain if that is not
    the default."""
    workload = request["workload"]
    rate = None if _finds_rate(workload) else workload.get("load", {}).get("rate_per_second")
    domain = domain_of(request)
    return "".join(
        (
            str(workload["name"]),
            f" at {rate:g}/s" if rate else "",
            f" of {domain}" if domain not in ("", DEFAULT_DOMAIN) else "",
        )
    )
