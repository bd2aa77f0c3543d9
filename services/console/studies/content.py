"""The content of a study's page: a section per experiment, scores, what was left out. Pure.

Figures of this machine come from reports of runs, those of the paper from the study's file; cells
without a figure are empty.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf

from analysis.comparability import is_doubtful
from schemas.model import Stage
from schemas.report import (
    Bounded,
    Report,
    Scalability,
)
from schemas.study import (
    PREFIXES,
    CurveName,
    Experiment,
    FigureName,
    Growth,
    PaperValue,
    Score,
    Study,
    System,
)
from services.console.report.charts import (
    ChartFrame,
    Line,
    Picture,
    Range,
    line_picture,
    range_picture,
)
from services.console.report.several import SeriesRun, judged
from services.console.studies.article import Article, Section
from services.console.studies.figures import OF_FAULTS, figure_of, title_of, values_of_faults

MARK = " ¹"
NEVER = "never"
OF_SEVERAL = (
    "Times, core-seconds and the p99 before are medians of the run's faults, with their range in "
    f"brackets; {NEVER}: not before the next fault or the end. Lost, late, repeated, wrong and "
    "aborted are sums over the run."
)
MARKED = "¹ Figures of a run that was not steady or was disturbed."
Row = tuple[str, ...]
MAY_BE_LEFT_OUT = ("paper", "paper: where", "in the paper", "how they differ", "left out because")


@dataclass(frozen=True)
class Standing:
    """Progress of a study. left_out: why systems are not measured; versions: of engines installed
    on first use; both by name of the system. to_do: number of outstanding runs."""

    scale: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    to_do: int = 0


NamedPoints = Mapping[str, Sequence[tuple[float, float]]]
Curves = Mapping[Stage, NamedPoints]


@dataclass(frozen=True)
class MeasuredCell:
    """A run of a cell. report: None if there is none; `failed` gives the reason. curves: by stage,
    empty for the pipeline, and name."""

    run_id: str
    pipeline: str
    valid: bool
    report: Report | None = None
    failed: str = ""
    curves: Curves = field(default_factory=dict)

    def figure(self, stage: Stage, name: FigureName) -> float | None:
        """A figure; None for an INVALID run."""
        if self.report is None or not self.valid:
            return None
        return figure_of(self.report, self.pipeline, stage, name)

    def text(self, stage: Stage, name: FigureName) -> str:
        """A figure in the format of a table, with the range of the faults that it is of, and the
        mark."""
        figure = self.figure(stage, name)
        if figure is None or self.report is None:
            return ""
        values = values_of_faults(self.report.pipelines[self.pipeline].stages[stage], name)
        low, high = shown(min(values, default=figure)), shown(max(values, default=figure))
        return shown(figure) + (f" ({low} to {high})" if low != high else "") + self.mark

    @property
    def mark(self) -> str:
        """The footnote mark of its figures, or an empty string."""
        return MARK if self.report is not None and is_doubtful(self.report) else ""


@dataclass(frozen=True)
class CurveKind:
    """What a curve shows, and its units. is_of_stage: of one stage, not of the pipeline; is_log:
    with a logarithmic y axis."""

    words: str
    unit: str
    x_unit: str = "s"
    is_of_stage: bool = False
    is_log: bool = False


RATE = "records/s"
KINDS: dict[CurveName, CurveKind] = {
    **{
        name: CurveKind(f"{name.replace('_', ' ')}, median of each second", "ms", is_of_stage=True)
        for name in PREFIXES.values()
    },
    "output_rate": CurveKind("outputs per second", "/s", is_of_stage=True),
    "pull_rate": CurveKind("records handed over per second", "/s"),
    "cpu_cores": CurveKind("processor use", "cores"),
    "heap_mb": CurveKind("used heap", "MB"),
    "scheduler_delay": CurveKind("median scheduler delay of tasks", "ms"),
    "latency_by_rate": CurveKind(
        "median latency by rate", "ms", RATE, is_of_stage=True, is_log=True
    ),
    "cpu_by_rate": CurveKind("processor use by rate", "cores", RATE),
    "heap_by_rate": CurveKind("mean used heap by rate", "MB", RATE),
}
# Runs by experiment, system and stage.
Cells = Mapping[tuple[str, str, Stage], MeasuredCell]


def remaining(to_do: int) -> str:
    """How many runs are left, at least one."""
    runs = "1 run remains" if to_do == 1 else f"{to_do} runs remain"
    return f"{runs}; the same command resumes."


def article(study: Study, standing: Standing, cells: Cells) -> Article:
    """The page."""
    words = [study.question, f"Source: {study.source}.", f"Scale: {standing.scale}."]
    if standing.to_do:
        words.append(remaining(standing.to_do))
    sections = [Section("How it was measured", (study.method, *_machine(cells)))]
    sections += [
        _section(study, experiment, standing.scale, cells) for experiment in study.experiments
    ]
    sections += [section for each in study.growth if (section := _growth(each, cells)) is not None]
    if study.scores:
        sections.append(_scores(study, cells))
    sections.append(Section("What differs from the paper, and why", study.differs))
    sections.append(_systems(study, standing))
    troubles = _troubles(cells)
    if troubles:
        sections.append(Section("Runs that are not clean", troubles))
    return Article(study.title, tuple(words), tuple(sections))


def _machine(cells: Cells) -> tuple[str, ...]:
    """The machines and versions of the runs, of several each with its number of runs."""
    reports = {each.run_id: each.report for each in cells.values() if each.report is not None}
    texts = Counter(_environment(report) for report in reports.values())
    if len(texts) == 1:
        return next(iter(texts))
    return tuple(
        f"{count} {'run' if count == 1 else 'runs'}: {' '.join(words)}"
        for words, count in texts.items()
    )


def _environment(report: Report) -> tuple[str, str]:
    where = report.environment
    memory_gb = where.get("memory_bytes", 0) / 1e9
    versions = ", ".join(f"{name} {number}" for name, number in where.get("packages", {}).items())
    return (
        f"Machine: {where.get('processor')}, {where.get('cores')} cores, {memory_gb:.0f} GB,"
        f" {where.get('system')}; broker {where.get('broker')}, {where.get('java')}.",
        f"Versions: Tidegauge {where.get('tidegauge')}, {versions}.",
    )


def _section(study: Study, experiment: Experiment, scale: str, cells: Cells) -> Section:
    words = [experiment.asks, f"In the paper: {experiment.paper}."]
    words += [experiment.note] if experiment.note else []
    if scale not in experiment.scales:
        words.append(f"At the scale {scale} it is not measured; these are the paper's figures.")
    header, names = ["system", "stage"], _known_figures(study, experiment, cells)
    for name in names:
        header += [title_of(name), "paper"]
    header += ["run", "paper: where"]
    rows = [
        row
        for system in study.systems
        for stage in experiment.stages
        if (row := _row(experiment, names, system, stage, cells)) is not None
    ]
    ranges = _ranges(study, experiment, names, cells)
    pictures = ({"": ranges} if ranges else {}) | _over_time(study, experiment, cells)
    words += _footnote(rows)
    words += [OF_SEVERAL] if set(OF_FAULTS) & set(experiment.figures) and rows else []
    table = _told(header, rows)
    return Section(experiment.title, tuple(words), *table, "", pictures, experiment.name)


def _footnote(rows: Sequence[Row]) -> list[str]:
    return [MARKED] if any(MARK in text for row in rows for text in row) else []


def _told(header: Sequence[str], rows: Sequence[Row]) -> tuple[Row, tuple[Row, ...]]:
    """Header and rows without remarks and without the paper's columns that are empty."""
    kept = [
        place
        for place, name in enumerate(header)
        if name not in MAY_BE_LEFT_OUT or not rows or any(row[place] for row in rows)
    ]
    lines = [tuple(row[place] for place in kept) for row in (header, *rows)]
    return lines[0], tuple(lines[1:])


def _known_figures(study: Study, experiment: Experiment, cells: Cells) -> tuple[FigureName, ...]:
    """The figures of an experiment that a valid run or the paper has; all without such a run."""
    measured = [
        (cell, stage)
        for system in study.systems
        for stage in experiment.stages
        if (cell := cells.get((experiment.name, system.name, stage))) is not None and cell.valid
    ]
    if not measured:
        return experiment.figures
    of_paper = {name for value in experiment.paper_values for name in value.values}
    known = (
        name
        for name in experiment.figures
        if name in of_paper or any(cell.figure(stage, name) is not None for cell, stage in measured)
    )
    return tuple(known) or experiment.figures


def _row(
    experiment: Experiment,
    names: Sequence[FigureName],
    system: System,
    stage: Stage,
    cells: Cells,
) -> tuple[str, ...] | None:
    """None if neither this machine nor the paper has a value."""
    measured = cells.get((experiment.name, system.name, stage))
    paper = paper_of(experiment, system, stage)
    if measured is None and paper is None:
        return None
    row = [system.name, stage]
    for name in names:
        row.append(measured.text(stage, name) if measured else "")
        row.append(shown(paper.values.get(name) if paper else None))
    run = "" if measured is None else measured.run_id
    if measured is not None and not measured.valid:
        run += " INVALID" if not measured.failed else " failed"
    where = "" if paper is None else f"{paper.where}{'; ' + paper.note if paper.note else ''}"
    return (*row, run, where)


def paper_of(experiment: Experiment, system: System, stage: Stage) -> PaperValue | None:
    """The paper's value for the system nearest to this one."""
    for value in experiment.paper_values:
        if system.paper and value.system == system.paper and value.stage == stage:
            return value
    return None


def shown(value: float | None) -> str:
    """A figure in the format of a table."""
    if value is None:
        return ""
    if isinf(value):
        return NEVER
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ranges(
    study: Study, experiment: Experiment, names: Sequence[FigureName], cells: Cells
) -> Picture | None:
    """Chart of the first figure, or of the range to the last one if both are latencies; crosses
    mark the paper's values."""
    low_name = names[0]
    both = low_name.endswith("_ms") and names[-1].endswith("_ms")
    high_name = names[-1] if both else low_name
    groups = []
    for number, stage in enumerate(experiment.stages):
        rows = []
        for system in study.systems:
            measured = cells.get((experiment.name, system.name, stage))
            if measured is None:
                continue
            low, high = (measured.figure(stage, name) for name in (low_name, high_name))
            if low is None or high is None or isinf(low) or isinf(high):
                continue
            paper = paper_of(experiment, system, stage)
            given = paper.values if paper else {}
            marks = tuple(
                given[name] for name in dict.fromkeys((low_name, high_name)) if name in given
            )
            label = f"{stage}: {system.name}{measured.mark}"
            rows.append(Range(label, low, high, number + 1, marks))
        if rows:
            groups.append(rows)
    if not groups:
        return None
    unit = title_of(low_name) + (f" (dot), to {title_of(high_name)}" if both else "")
    if any(each.reference for group in groups for each in group):
        unit += "; crosses: the paper"
    return range_picture(experiment.title, unit, groups)


def _over_time(study: Study, experiment: Experiment, cells: Cells) -> dict[str, Picture]:
    """The experiment's curves by caption: several latencies in a chart for each system and stage,
    and each other curve in one of all systems, for each stage if their runs or the curves differ
    between stages."""
    drawn = {
        (system.name, stage): cell
        for stage in experiment.stages
        for system in study.systems
        if (cell := cells.get((experiment.name, system.name, stage))) is not None and cell.valid
    }
    has_stages = len(experiment.stages) > 1
    together = {name for name in experiment.curves if name in PREFIXES.values()}
    charts: dict[str, Picture] = {}
    if len(together) > 1:
        kind = CurveKind("median of each second", "ms")
        for (system, stage), cell in drawn.items():
            own = cell.curves.get(stage, {})
            named = {
                name.replace("_", " "): own.get(name, ())
                for name in experiment.curves
                if name in together
            }
            caption = f"{system} {stage}" if has_stages else system
            charts |= _chart(experiment, f"{caption}, {kind.words}", kind, named)
    are_apart = len({cell.run_id for cell in drawn.values()}) > len({name for name, _ in drawn})
    for name in (name for name in experiment.curves if name not in together or len(together) == 1):
        kind = KINDS[name]
        is_split = has_stages and (kind.is_of_stage or are_apart)
        for stages in [[stage] for stage in experiment.stages] if is_split else [experiment.stages]:
            named = {
                system: cell.curves.get(stage if kind.is_of_stage else "", {}).get(name, ())
                for (system, stage), cell in drawn.items()
                if stage in stages
            }
            caption = f"{stages[0]}: {kind.words}" if is_split else kind.words
            charts |= _chart(experiment, caption, kind, named)
    return charts


def _chart(
    experiment: Experiment, caption: str, kind: CurveKind, named: NamedPoints
) -> dict[str, Picture]:
    """A chart by its caption; none without points."""
    curves = [
        Line(name, tuple(points), number + 1)
        for number, (name, points) in enumerate(named.items())
        if points
    ]
    if not curves:
        return {}
    label, x_high = f"{experiment.title}: {caption}", max(each.points[-1][0] for each in curves)
    frame = ChartFrame(label, kind.x_unit, kind.unit, x_high=x_high, log_y=kind.is_log)
    return {caption[:1].upper() + caption[1:]: line_picture(frame, curves)}


def _growth(growth: Growth, cells: Cells) -> Section | None:
    """Rates by size, per worker or core, and the law; None without a run."""
    runs: list[SeriesRun] = []
    for name, count in sorted(growth.counts.items(), key=lambda each: each[1]):
        cell = cells.get((growth.experiment, name, growth.stage))
        if cell is not None and cell.report is not None:
            runs.append(SeriesRun(count, 0, cell.report))
    if not runs:
        return None
    series = judged("", "", [[run] for run in runs], growth.unit if growth.of == "cores" else None)
    rates = {point.workers: point.rate_per_second for point in series.points}
    first = next((rate.value / count for count, rate in rates.items() if rate), None)
    rows = []
    for point in series.points:
        size = point.workers * growth.unit
        rate, law = point.rate_per_second, _predicted_rate(series, point.workers)
        cost, (run,) = point.core_seconds_per_million_records, point.runs
        rows.append(
            (
                f"{size:g}",
                "" if rate is None else _with_bounds(rate),
                "" if rate is None else shown(rate.value / size),
                "" if rate is None or not first else f"{rate.value / first / point.workers:.0%}",
                law,
                "" if cost is None else shown(cost.value),
                "" if point.free_cores is None else f"{point.free_cores:.1f}",
                run.run_id + ("" if run.valid else " INVALID"),
            )
        )
    each = growth.of.removesuffix("s")
    header = (
        *(growth.of, "sustainable, records/s", f"per {each}", "of linear growth", "the law's rate"),
        *("core-seconds per million records", "cores left free by others", "run"),
    )
    return Section(growth.title, tuple(series.said), header, tuple(rows))


def _with_bounds(rate: Bounded) -> str:
    low, high = shown(rate.low), "no upper bound" if rate.high is None else shown(rate.high)
    return f"{shown(rate.value)} ({low} to {high})"


def _predicted_rate(series: Scalability, workers: int) -> str:
    return next(
        (shown(each.rate_per_second.value) for each in series.predicted if each.workers == workers),
        "",
    )


def _scores(study: Study, cells: Cells) -> Section:
    systems = [system.name for system in study.systems]
    header = ("workload", "decision factor", "by", *systems)
    rows = []
    for score in study.scores:
        asked = [name for name in systems if not score.systems or name in score.systems]
        ours = scores_of(score, asked, cells)
        texts = []
        for system in study.systems:
            paper = score.paper.get(system.paper)
            here = ours.get(system.name)
            beside = "" if paper is None else f" (paper {paper:g})"
            own = "" if here is None else f"{here:g}{_mark(score, system, cells)}"
            texts.append(f"{own}{beside}".strip())
        by = f"{title_of(score.figure)} of {', '.join(score.stages)}"
        rows.append((score.workload, score.factor, by, *texts))
    words = (
        "A score is 1 plus the number of systems with a worse figure, so that the best one has the "
        "highest; equal figures have equal scores. Of several stages it is the mean of their "
        "figures. Systems that lack a figure have no score. The paper's scores are its own, and "
        "relative to its four systems.",
        f"In the paper: {study.scores_paper}.",
        *_footnote(rows),
    )
    return Section("Scores", words, header, tuple(rows))


def _mark(score: Score, system: System, cells: Cells) -> str:
    result = (cells.get((score.experiment, system.name, stage)) for stage in score.stages)
    return max((each.mark for each in result if each is not None), default="")


def scores_of(score: Score, systems: list[str], cells: Cells) -> dict[str, int]:
    """Scores of the systems for which all figures of the score exist."""
    figures: dict[str, float] = {}
    for system in systems:
        result = [
            measured.figure(stage, score.figure)
            for stage in score.stages
            if (measured := cells.get((score.experiment, system, stage))) is not None
        ]
        known = [value for value in result if value is not None]
        if len(known) == len(score.stages):
            figures[system] = sum(known) / len(known)
    sign = 1 if score.better == "lower" else -1
    return {
        name: 1 + sum(sign * other > sign * value for other in figures.values())
        for name, value in figures.items()
    }


def _systems(study: Study, standing: Standing) -> Section:
    rows = []
    for system in study.systems:
        version, reason = (
            standing.versions.get(system.name, ""),
            standing.left_out.get(system.name, ""),
        )
        rows.append((system.name, system.pipeline, version, system.paper, system.note, reason))
    header = (
        "system",
        "pipeline",
        "version",
        "in the paper",
        "how they differ",
        "left out because",
    )
    return Section("Systems", (), *_told(header, rows))


def _troubles(cells: Cells) -> tuple[str, ...]:
    result = []
    for (experiment, system, _stage), each in cells.items():
        head = f"{experiment}, {system}, run {each.run_id}"
        if each.report is None:
            result.append(f"{head} gave no figure: {each.failed}")
        elif not each.valid:
            result.append(f"{head} is INVALID: {' '.join(each.report.invalid_reasons)}")
        elif not each.report.conclusion.clean:
            result.append(f"{head} is valid, but not every output was exact and in time.")
    return tuple(dict.fromkeys(result))
