"""A study: a question, the runs that answer it on this machine, and the results of a paper.

One TOML file each in `studies/`. An experiment is a table of figures, a row for each system and
stage; its scales define how a quick and a thorough study differ.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from schemas.model import Model, Name, Stage
from schemas.percentiles import RANKED

EVERY: Final = "*"  # system of an experiment's settings
LATENCIES: Final = (*RANKED, "mean")
# Definition of latency by the beginning of a figure's name.
PREFIXES: Final = {
    "": "latest",
    "event_time_": "event_time",
    "mean_of_inputs_": "mean",
    "window_time_": "window_time",
    "visible_": "visible",
    "processing_time_": "processing_time",
}
FIGURES: Final = (
    *(f"{prefix}{name}_ms" for prefix in PREFIXES for name in LATENCIES),
    "sustainable_per_second",
    "sustainable_gbit_per_second",
    "first_output_s",
    "caught_up_s",
    "peak_outputs_per_second",
    "normal_median_ms",
    "highest_median_ms",
    "high_for_s",
    "burst_p99_ms",
    "outage_s",
    "normal_again_s",
    "extra_core_s",
    "before_p99_ms",
    "missing",
    "late",
    "duplicates",
    "wrong",
    "aborted",
    "memory_mb",
    "heap_min_mb",
    "heap_mean_mb",
    "heap_max_mb",
    "cpu_cores",
    *(f"scheduler_delay_{name}_ms" for name in ("p50", "p99", "max", "mean")),
    "core_s_per_million",
    "input_per_second",
    "lag_max_records",
    "way_in_lost",
    "way_in_p50_us",
    "way_in_p99_us",
    "lost",
    "socket_p50_ns",
    "socket_p99_ns",
)
# What a picture can show over time: medians by a definition of latency, outputs per second, records
# per second that the broker hands over, cores and heap in use, and the median delay of tasks by the
# engine's scheduler.
PULL_RATE, CPU_CORES, SCHEDULER_DELAY = "pull_rate", "cpu_cores", "scheduler_delay"
OUTPUT_RATE, HEAP = "output_rate", "heap_mb"
# What it can show over the rates of the steps of a search.
LATENCY_BY_RATE, CPU_BY_RATE, HEAP_BY_RATE = "latency_by_rate", "cpu_by_rate", "heap_by_rate"
BY_RATE: Final = (LATENCY_BY_RATE, CPU_BY_RATE, HEAP_BY_RATE)
CURVES: Final = (
    *PREFIXES.values(),
    *(OUTPUT_RATE, PULL_RATE, CPU_CORES, HEAP, SCHEDULER_DELAY),
    *BY_RATE,
)
MOST_EXPERIMENTS, MOST_SYSTEMS, MOST_SIZES = 50, 50, 20
ROUNDING = 1e-6


def _one_of(what: str, names: tuple[str, ...]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"there is no {what} {name!r}; there are: {', '.join(names)}")
        return name

    return AfterValidator(check)


FigureName = Annotated[str, _one_of("figure", FIGURES)]
CurveName = Annotated[str, _one_of("curve", CURVES)]


class System(Model):
    """A row of the tables. pipeline: what is measured here, a name or a path; settings: fields of
    that pipeline that differ in this study, as in its file; paper: the paper's name for the most
    similar system, empty if there is none; note: how they differ."""

    name: str = Field(min_length=1, max_length=60)
    pipeline: str
    settings: dict[str, Any] = Field(default_factory=dict)
    paper: str = ""
    note: str = ""


class Scale(Model):
    """How an experiment is done at one scale. workload: overridden parts of the workload's file.
    apart: each stage in a separate run; else all in one. systems: those of the study by name, all
    if empty."""

    workload: dict[str, Any] = Field(default_factory=dict)
    apart: bool = False
    systems: tuple[str, ...] = ()


class PaperValue(Model):
    """The paper's result for a system. where: its table, figure or section."""

    system: str
    stage: Stage
    where: str = Field(min_length=1)
    values: dict[FigureName, float]
    note: str = ""


class Experiment(Model):
    """One table. asks: the question it answers; paper: where the paper reports it. curves: what its
    pictures show over time. settings: fields of the pipelines that differ in this experiment, by
    system; `*` for all. stage_settings: those of runs of one stage apart, by stage. rate_of: the
    earlier experiment whose search has the sustainable rates that its load is a share of; if empty,
    the newest of the store. It has no runs at a scale missing in `scales`."""

    name: Name
    title: str
    asks: str
    paper: str
    workload: str
    domain: str = ""
    stages: tuple[Stage, ...] = Field(min_length=1)
    figures: tuple[FigureName, ...] = Field(min_length=1)
    curves: tuple[CurveName, ...] = ()
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    stage_settings: dict[Stage, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    rate_of: Name | Literal[""] = ""
    scales: dict[Name, Scale]
    paper_values: tuple[PaperValue, ...] = ()
    note: str = ""


class Score(Model):
    """One row of a table of scores: systems ranked by a figure of an experiment, over `stages`.
    better: which end of the figure gets the highest score. systems: those of the study that are
    compared, all if empty. paper: scores by the paper's names of systems."""

    workload: str
    factor: str
    experiment: Name
    figure: FigureName
    stages: tuple[Stage, ...] = Field(min_length=1)
    better: Literal["lower", "higher"] = "lower"
    systems: tuple[str, ...] = ()
    paper: dict[str, float] = Field(default_factory=dict)


class Growth(Model):
    """A table of the rates that a system sustains as it grows, and the scalability law fitted to
    them. of: what grows: its workers, or the cores of all of them together. stage: of the
    experiment, whose search found the rates. sizes: numbers by name of the system; of cores they
    are multiples of the least."""

    title: str
    experiment: Name
    stage: Stage
    of: Literal["workers", "cores"]
    sizes: dict[str, float] = Field(min_length=2, max_length=MOST_SIZES)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of workers, or multiples of the least number of cores, by name of the system."""
        return {name: round(size / self.unit) for name, size in self.sizes.items()}

    @property
    def unit(self) -> float:
        """What the counts are multiples of."""
        return min(self.sizes.values()) if self.of == "cores" else 1.0

    @model_validator(mode="after")
    def _are_multiples(self) -> "Growth":
        if (least := min(self.sizes.values())) <= 0:
            raise ValueError(f"sizes: {least:g} {self.of} are too few")
        for name, size in self.sizes.items():
            if abs(size / self.unit - self.counts[name]) > ROUNDING:
                raise ValueError(f"sizes: {size:g} is not a multiple of {self.unit:g}")
        if len(set(self.sizes.values())) < len(self.sizes):
            raise ValueError("sizes: each system needs another size")
        return self


class Limits(Model):
    """Limits of a study at one scale. tries: total attempts for an INVALID run; minutes: after
    which no further run begins."""

    tries: int = Field(2, ge=1, le=10)
    minutes: float = Field(85, gt=0, le=100_000)


class Study(Model):
    """A study (`studies/NAME.toml`). differs: differences from the paper, a sentence each.
    settings: fields of all pipelines that differ at a scale."""

    name: Name
    title: str
    question: str
    source: str
    method: str
    differs: tuple[str, ...] = ()
    scores_paper: str = ""
    limits: dict[Name, Limits]
    settings: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    systems: tuple[System, ...] = Field(min_length=1, max_length=MOST_SYSTEMS)
    experiments: tuple[Experiment, ...] = Field(min_length=1, max_length=MOST_EXPERIMENTS)
    scores: tuple[Score, ...] = ()
    growth: tuple[Growth, ...] = ()

    @property
    def scales(self) -> tuple[Name, ...]:
        """Its scales."""
        return tuple(self.limits)

    def systems_of(self, scale: Scale) -> tuple[System, ...]:
        """The systems that an experiment measures at a scale."""
        return tuple(
            system for system in self.systems if not scale.systems or system.name in scale.systems
        )

    @model_validator(mode="after")
    def _names_are_known(self) -> "Study":
        systems = {system.name for system in self.systems}
        experiments = {experiment.name for experiment in self.experiments}
        if len(experiments) < len(self.experiments) or len(systems) < len(self.systems):
            raise ValueError("names of experiments and systems must be unique")
        earlier = [""]
        for scale in self.settings:
            if scale not in self.limits:
                raise ValueError(f"settings: there is no scale {scale!r}")
        for experiment in self.experiments:
            self._check_experiment(experiment)
            if experiment.rate_of not in earlier:
                where = f"experiment {experiment.name}"
                raise ValueError(f"{where}: no experiment before it is {experiment.rate_of!r}")
            earlier.append(experiment.name)
        for score in self.scores:
            self._check_score(score)
        for growth in self.growth:
            where = f"growth {growth.title}"
            experiment = self._experiment(where, growth.experiment)
            if growth.stage not in experiment.stages:
                raise ValueError(f"{where}: {growth.experiment} has no such stage")
            self._check_systems(where, growth.sizes)
        return self

    def _experiment(self, where: str, name: str) -> Experiment:
        for experiment in self.experiments:
            if experiment.name == name:
                return experiment
        raise ValueError(f"{where}: there is no experiment {name!r}")

    def _check_experiment(self, experiment: Experiment) -> None:
        where = f"experiment {experiment.name}"
        self._check_systems(where, {*experiment.settings} - {EVERY})
        for stage, settings in experiment.stage_settings.items():
            if stage not in experiment.stages:
                raise ValueError(f"{where}: stage_settings: it has no stage {stage!r}")
            self._check_systems(where, {*settings} - {EVERY})
        for name, scale in experiment.scales.items():
            if name not in self.limits:
                raise ValueError(f"{where}: limits has no scale {name!r}")
            self._check_systems(where, scale.systems)
        self._check_papers(where, [value.system for value in experiment.paper_values])
        for value in experiment.paper_values:
            if (
                not set(value.values) <= set(experiment.figures)
                or value.stage not in experiment.stages
            ):
                raise ValueError(f"{where}: no cell holds a value of {value.system}")

    def _check_score(self, score: Score) -> None:
        where = f"score {score.factor}"
        experiment = self._experiment(where, score.experiment)
        if not set(score.stages) <= set(experiment.stages):
            raise ValueError(f"{where}: {score.experiment} has no such stages")
        if score.figure not in experiment.figures:
            raise ValueError(f"{where}: {score.experiment} has no such figure")
        self._check_systems(where, score.systems)
        self._check_papers(where, score.paper)

    def _check_systems(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in {system.name for system in self.systems}:
                raise ValueError(f"{where}: there is no system {name!r}")

    def _check_papers(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in {system.paper for system in self.systems}:
                raise ValueError(f"{where}: the paper has no system {name!r}")
