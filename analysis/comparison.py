"""Describes whether two runs differ: `compare RUN RUN`, several runs each, or the pipelines of one
run. Pure.

Only the median and the 99th percentile are decided: each further figure would widen the intervals
of all. Other latencies are described, with an interval of their own (`other_latencies`).

With five runs or more on each side, the variation between runs is used, and the result applies to
future runs. Pipelines of one run share the same seconds, so the variation between seconds is used
(in blocks, because neighbours are correlated). With fewer runs the variation between runs is
unknown: no difference is called real.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.bootstrap import Histograms, figure_difference
from analysis.intervals import Interval, is_supported, run_difference
from schemas.percentiles import LEVELS
from schemas.validation_errors import DefinitionError

CONFIDENCE = 0.95  # joint confidence of all decided figures of a comparison (Bonferroni)
ENOUGH_RUNS = 5
Levels = Mapping[str, float | None]  # percentiles by figure; None: the mean
FIGURES: Levels = {"p50": 0.5, "p99": 0.99}  # decided
OTHERS: Levels = {"mean": None} | {each: LEVELS[each] for each in LEVELS if each not in FIGURES}
Seconds = dict[int, dict[int, int]]  # second: latency in ms: count
Run = Mapping[str, dict[str, Seconds]]  # by pipeline and stage


@dataclass(frozen=True)
class Side:
    """One side of a comparison: one pipeline in some runs. runs: per run and stage its seconds."""

    name: str
    runs: tuple[dict[str, Seconds], ...]


@dataclass(frozen=True)
class FigureDifference:
    """One figure: before, after, and the difference with its interval. Latencies are in ms. stage:
    empty for a figure of the whole pipeline."""

    stage: str
    figure: str
    before: float
    after: float
    interval: Interval

    @property
    def is_real(self) -> bool:
        """Whether it exceeds the usual variation."""
        return self.interval.excludes_zero


def pairs_of(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[Side, Side]]:
    """The pairs to compare: pipelines of the same name, or the only pipeline of each side. Raises
    DefinitionError if there is no such pair."""
    first, second = ({name for run in side for name in run} for side in (before, after))
    both = sorted(first & second)
    names = [(name, name) for name in both] or [(min(first), min(second))]
    if not both and (len(first) > 1 or len(second) > 1):
        raise DefinitionError("The runs have no pipeline in common.")
    return [(_side(old, before), _side(new, after)) for old, new in names]


def pipelines_of(run: Run) -> list[tuple[Side, Side]]:
    """The first pipeline of a run paired with each other one. Raises DefinitionError if it is the
    only one."""
    first, *others = sorted(run)
    if not others:
        raise DefinitionError("The run has only one pipeline; give a second run to compare with.")
    return [(_side(first, [run]), _side(other, [run])) for other in others]


def differences(
    before: Side, after: Side, *, same_run: bool, pairs: int = 1
) -> list[FigureDifference]:
    """The decided figures of the stages common to both sides, with joint confidence for as many
    pairs of sides."""
    cells = [(stage, figure) for stage in common_stages(before, after) for figure in FIGURES]
    confidence = 1 - (1 - CONFIDENCE) / max(1, pairs * len(cells))
    return [
        _difference(before, after, cell, same_run=same_run, confidence=confidence) for cell in cells
    ]


def other_latencies(before: Side, after: Side, *, same_run: bool) -> list[FigureDifference]:
    """The described latencies of the stages common to both sides, each with its own confidence.
    Percentiles of too few outputs are omitted."""
    return [
        _difference(before, after, (stage, figure), same_run=same_run, confidence=CONFIDENCE)
        for stage in common_stages(before, after)
        for figure, level in OTHERS.items()
        if level is None or is_supported(_outputs(before, after, stage), level)
    ]


def common_stages(before: Side, after: Side) -> list[str]:
    """The stages of every run of both sides."""
    runs = [*before.runs, *after.runs]
    return [stage for stage in runs[0] if all(stage in run for run in runs)]


def _outputs(before: Side, after: Side, stage: str) -> int:
    """The number of outputs of the run with the fewest."""
    runs = [*before.runs, *after.runs]
    return min(sum(sum(counts.values()) for counts in run[stage].values()) for run in runs)


def by_runs(before: Side, after: Side) -> bool:
    """Whether to use the variation between runs instead of seconds."""
    return min(len(before.runs), len(after.runs)) >= ENOUGH_RUNS


def sentence(difference: FigureDifference, *, may_be_real: bool = True) -> str:
    """`join p50: 5 → 8 ms; slower by 3 ms (+60%), between +2 and +4: significant.`

    may_be_real: whether a difference can apply beyond these runs.
    """
    low, high = difference.interval.low, difference.interval.high
    head = (
        f"{difference.stage} {difference.figure}: {difference.before:g} → {difference.after:g} ms"
    )
    if low is None or high is None:
        return f"{head}; not enough data to detect a difference."
    if not difference.is_real:
        return f"{head}; no significant difference (between {low:+.3g} and {high:+.3g} ms)."
    step = difference.interval.value
    share = f" ({step / difference.before:+.0%})" if difference.before > 0 else ""
    word = "slower" if step > 0 else "faster"
    text = f"{head}; {word} by {abs(step):.3g} ms{share}, between {low:+.3g} and {high:+.3g}"
    return f"{text}: significant." if may_be_real else f"{text}, in these runs."


def conclusion(
    before: Side,
    after: Side,
    figure_differences: Sequence[FigureDifference],
    *,
    same_run: bool,
    doubts: Sequence[str],
) -> str:
    """The result in a sentence or two. doubts: why a difference may have a cause other than the
    pipeline."""
    slower = [
        f"{d.stage} {d.figure}" for d in figure_differences if d.is_real and d.interval.value > 0
    ]
    faster = [
        f"{d.stage} {d.figure}" for d in figure_differences if d.is_real and d.interval.value < 0
    ]
    parts = [
        f"{word} in {', '.join(cells)}" for word, cells in (("slower", slower), ("faster", faster))
    ]
    outcome = " and ".join(
        text for text, cells in zip(parts, (slower, faster), strict=True) if cells
    )
    if not outcome:
        return "No significant difference."
    if doubts:
        text = f"{after.name} was {outcome} than {before.name} in these runs."
        return f"{text} This is not conclusive: {'; '.join(doubts)}."
    if by_runs(before, after):
        return (
            f"{after.name} is {outcome} than {before.name}. The intervals come from the variation "
            "between runs."
        )
    if same_run:
        return (
            f"{after.name} is {outcome} than {before.name}. This applies to this run, in which "
            "both ran at once; run --pipeline A,B --interleave measures them alternately."
        )
    return (
        f"{after.name} was {outcome} than {before.name} in these runs. Measure {ENOUGH_RUNS} runs "
        f"of each (--repeat {ENOUGH_RUNS}) to compare this with the variation between runs."
    )


def _side(pipeline: str, runs: Sequence[Run]) -> Side:
    return Side(pipeline, tuple(run[pipeline] for run in runs if pipeline in run))


def _difference(
    before: Side,
    after: Side,
    cell: tuple[str, str],
    *,
    same_run: bool,
    confidence: float,
) -> FigureDifference:
    stage, figure = cell
    level = {**FIGURES, **OTHERS}[figure]
    old, new = _histograms(before, stage), _histograms(after, stage)
    if same_run:
        old, new = _aligned(before, after, stage)
    if by_runs(before, after):
        interval = run_difference(
            _of_runs(before, stage, level), _of_runs(after, stage, level), confidence
        )
    else:
        interval = figure_difference(old, new, level, paired=same_run, confidence=confidence)
    return FigureDifference(stage, figure, _whole(old, level), _whole(new, level), interval)


def _of_runs(side: Side, stage: str, level: float | None) -> list[float]:
    return [_whole(_histograms(Side(side.name, (run,)), stage), level) for run in side.runs]


def _whole(seconds: Histograms, level: float | None) -> float:
    """A percentile, or the mean, of all seconds, each with weight one."""
    return float(seconds.figure(level, np.ones((1, len(seconds.counts))))[0])


def _histograms(side: Side, stage: str) -> Histograms:
    """The seconds of all runs, concatenated."""
    return _table([run[stage][at_s] for run in side.runs for at_s in sorted(run[stage])])


def _aligned(before: Side, after: Side, stage: str) -> tuple[Histograms, Histograms]:
    """The same seconds of both, including those in which one of them published nothing."""
    old, new = before.runs[0][stage], after.runs[0][stage]
    times = sorted({*old, *new})
    return _table([old.get(t, {}) for t in times]), _table([new.get(t, {}) for t in times])


def _table(seconds: Sequence[dict[int, int]]) -> Histograms:
    values = sorted({latency_ms for second in seconds for latency_ms in second})
    columns = {latency_ms: column for column, latency_ms in enumerate(values)}
    counts = np.zeros((len(seconds), len(values)))
    for row, second in enumerate(seconds):
        for latency_ms, count in second.items():
            counts[row, columns[latency_ms]] += count
    return Histograms(np.asarray(values, dtype=np.float64), counts)
