"""Figures of a comparison that are described, not decided, and how they are told. Pure.

Each has its own interval of 95 %, and none is called significant. Deciding them too would widen the
intervals of the decided figures (Bonferroni): of five runs each with five stages, by a fifth.
"""

from collections.abc import Sequence

from analysis.costs import COST
from analysis.intervals import CONFIDENCE, Interval, independent_difference, run_difference
from schemas.percentiles import shown
from schemas.report import Described, Number, PipelineReport, Report, StageReport
from schemas.threshold import RATE, SUSTAINABLE_RATE

Side = tuple[str, Sequence[Report]]  # a pipeline, and the reports of its runs
UNITS = {
    RATE: "records/s",
    COST: "core-seconds per million records",
    SUSTAINABLE_RATE: "records/s",
}
NAMES = {RATE: "output rate", COST: "cost", SUSTAINABLE_RATE: "sustainable rate"}
LARGE = 1000  # from here on, a figure is shown without decimals


def row(stage: str, figure: str, before: Number, after: Number, difference: Interval) -> Described:
    """A figure with its unit. stage: empty for a figure of the pipeline."""
    return Described(
        stage=stage,
        figure=figure,
        unit=UNITS.get(figure, "ms"),
        before=before,
        after=after,
        value=difference.value,
        low=difference.low,
        high=difference.high,
    )


def of_reports(before: Side, after: Side, stages: Sequence[str]) -> list[Described]:
    """The output rate of each stage, the cost of the pipeline and the rate that a search found.
    Figures that some run does not have are omitted.

    With two runs or more on each side the intervals are from the variation between runs. For one
    run each, the cost has one from the intervals of both reports.
    """
    cells = [*((stage, RATE) for stage in stages), ("", COST), ("", SUSTAINABLE_RATE)]
    rows = []
    for stage, figure in cells:
        old, new = _values(before, stage, figure), _values(after, stage, figure)
        if not old or not new:
            continue
        was, now = sum(old) / len(old), sum(new) / len(new)
        if min(len(old), len(new)) > 1:
            interval = run_difference(old, new, CONFIDENCE)
        elif figure == COST and (bounds := _bounds(before, after)):
            interval = independent_difference(was, now, bounds)
        else:
            interval = Interval(now - was, None, None)
        rows.append(row(stage, figure, was, now, interval))
    return rows


def _values(side: Side, stage: str, figure: str) -> list[Number]:
    """A figure in each run; empty if one does not have it."""
    name, reports = side
    values = [_value(report, name, stage, figure) for report in reports]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _value(report: Report, pipeline: str, stage: str, figure: str) -> Number | None:
    if figure == SUSTAINABLE_RATE:
        return report.search.rate_per_second
    within = report.pipelines.get(pipeline, PipelineReport())
    if figure == COST:
        return within.resources.core_seconds_per_million_records
    return within.stages.get(stage, StageReport()).records_per_second


def _bounds(*sides: Side) -> list[Sequence[float]]:
    """The intervals of the cost of one run each; empty if not both are known."""
    known = [
        bounds
        for name, runs in sides
        if len(runs) == 1 and (bounds := runs[0].pipelines[name].resources.core_seconds_interval)
    ]
    return list(known) if len(known) == len(sides) else []


def in_words(figure: Described) -> str:
    """`cost 2030 → 4060 core-seconds per million records, +2030 (+100%), between +1900 and
    +2160`."""
    levels = f"{plain(figure.before)} → {plain(figure.after)} {figure.unit}"
    text = f"{name_of(figure)} {levels}, {step(figure)}"
    if figure.stage:
        text = f"{figure.stage} {text}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text}, between {plain(figure.low, '+')} and {plain(figure.high, '+')}"


def name_of(figure: Described) -> str:
    """The name of a figure for people."""
    return NAMES.get(figure.figure) or shown(figure.figure)


def step(figure: Described) -> str:
    """`+2030 (+100%)`."""
    share = f" ({figure.value / figure.before:+.0%})" if figure.before > 0 else ""
    return f"{plain(figure.value, '+')}{share}"


def plain(value: float, sign: str = "", digits: int = 3) -> str:
    """A figure with this many digits or more, without an exponent. sign: `+` to always show it."""
    return f"{value:{sign}.0f}" if abs(value) >= LARGE else f"{value:{sign}.{digits}g}"
