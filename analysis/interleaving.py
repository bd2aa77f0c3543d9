"""Compares two pipelines measured alternately, in blocks of one load. Pure.

Neighbouring blocks form a pair, so drift cancels, especially with the order A, B, B, A. The figures
of one block of a pair are subtracted from those of the other. The mean, trimmed by a tenth at
either end, has the interval of Tukey and McLaughlin (1963). The intervals of the decided FIGURES
have the joint confidence CONFIDENCE (Bonferroni), so among twenty runs without a difference at most
one is expected to report one. OTHERS are described: each has that confidence by itself.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypedDict

from analysis.comparability import doubts_of, needed_of
from analysis.costs import COST
from analysis.described import row
from analysis.intervals import Interval, student_t
from schemas import report as result
from schemas.percentiles import LEVELS, middle, quantile
from schemas.protocol import Interleaving
from schemas.report import Described, Interleaved, Number, Report

CONFIDENCE = 0.95
TRIMMED = 0.1
LEAST_PAIRS = 5
# Minimum outputs of a block for a percentile, so that some lie above it.
LEAST_OUTPUTS = {"p50": 10, "p95": 40, "p99": 200, "p999": 2_000, "mean": 10, "middle": 10}
OTHERS = ("p999", COST)
FIGURES = tuple(figure for figure in LEAST_OUTPUTS if figure not in OTHERS)
# By stage, the figures of both blocks of each pair.
Values = Mapping[str, Sequence[Sequence[Mapping[str, Number]]]]
Latencies = Mapping[int, Mapping[int, int]]  # by second of latest input: latency in ms: count


@dataclass(frozen=True)
class Turns:
    """The turns of the pipelines, in epoch seconds."""

    said: Interleaving
    load_start_s: int
    measured_s: tuple[int, int]

    def seconds_of(self, pipeline: str) -> set[int]:
        """The measured seconds of a pipeline's turns."""
        return {second for second in range(*self.measured_s) if self.of(second) == pipeline}

    def of(self, second: int) -> str:
        """The pipeline of the turn in a second of the load."""
        return self.said.turn(second - self.load_start_s)


@dataclass(frozen=True)
class Block:
    """A time in which the load went to one pipeline: epoch seconds, the end exclusive."""

    pipeline: str
    start_s: int
    end_s: int


@dataclass(frozen=True)
class PairDifference:
    """Difference of the second pipeline from the first in one figure, ms, with bounds."""

    value: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        """Whether it exceeds the variation between blocks."""
        return self.low > 0 or self.high < 0


def blocks(
    order: Sequence[str], block_s: int, first_s: int, measured_s: tuple[int, int]
) -> list[Block]:
    """The whole blocks within the measured time (epoch seconds), in time order. first_s: start of
    the first block, with which `order` begins."""
    begin_s, until_s = measured_s
    first, last = -(-(begin_s - first_s) // block_s), (until_s - first_s) // block_s
    return [
        Block(
            order[number % len(order)],
            first_s + number * block_s,
            first_s + (number + 1) * block_s,
        )
        for number in range(first, last)
    ]


def paired(blocks: Sequence[Block], first: str, second: str) -> list[tuple[Block, Block]]:
    """Pairs of neighbouring blocks of different pipelines, each block once; the first pipeline
    first."""
    pairs, place = [], 0
    while place + 1 < len(blocks):
        two = {each.pipeline: each for each in blocks[place : place + 2]}
        if set(two) == {first, second}:
            pairs.append((two[first], two[second]))
            place += 2
        else:
            place += 1
    return pairs


def outputs_of(
    seconds: Latencies, blocks: Sequence[Block], edge_s: int
) -> dict[Block, Counter[int]]:
    """Latencies of the outputs whose latest input was appended within each block, except within
    edge_s of its ends: there the pipeline has just begun, or waits for input in its next block."""
    outputs: dict[Block, Counter[int]] = {block: Counter() for block in blocks}
    inside = {
        second: block
        for block in blocks
        for second in range(block.start_s + edge_s, block.end_s - edge_s)
    }
    for at_s, latencies in seconds.items():
        if at_s in inside:
            outputs[inside[at_s]].update(latencies)
    return outputs


def figures_of(outputs: Counter[int]) -> dict[str, float]:
    """Percentiles, mean and `middle` (schemas.percentiles.middle) of a block. Figures with too few
    outputs are omitted."""
    total = outputs.total()
    outcome: dict[str, float] = {}
    for figure, least in LEAST_OUTPUTS.items():
        if total < least:
            continue
        if figure == "mean":
            outcome[figure] = sum(ms * count for ms, count in outputs.items()) / total
        elif figure == "middle":
            outcome[figure] = middle(outputs)
        else:
            outcome[figure] = float(quantile(outputs, LEVELS[figure]) or 0)
    return outcome


def differences(values: Values) -> dict[str, dict[str, PairDifference]]:
    """The decided differences by stage and figure. values: by stage, the figures of both blocks of
    each pair."""
    known = _steps(values, FIGURES)
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(known))
    outcome: dict[str, dict[str, PairDifference]] = {}
    for (stage, figure), steps in known.items():
        outcome.setdefault(stage, {})[figure] = trimmed_mean(steps, confidence)
    return outcome


def other_rows(values: Values) -> list[Described]:
    """The described differences (`described.row`): before and after are the means of the blocks. A
    figure of the whole pipeline has the stage ''."""
    rows = []
    for (stage, figure), steps in _steps(values, OTHERS).items():
        pairs = [(a[figure], b[figure]) for a, b in values[stage] if figure in a and figure in b]
        before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
        outcome = trimmed_mean(steps, CONFIDENCE)
        interval = Interval(outcome.value, outcome.low, outcome.high)
        rows.append(row(stage, figure, before, after, interval))
    return rows


def _steps(values: Values, figures: Sequence[str]) -> dict[tuple[str, str], list[float]]:
    """The differences within the pairs, by stage and figure, if there are enough."""
    cells = {
        (stage, figure): [b[figure] - a[figure] for a, b in pairs if figure in a and figure in b]
        for stage, pairs in values.items()
        for figure in figures
    }
    return {cell: steps for cell, steps in cells.items() if len(steps) >= LEAST_PAIRS}


def trimmed_mean(values: Sequence[float], confidence: float) -> PairDifference:
    """The mean without the TRIMMED share at either end, with its interval, which uses the standard
    deviation of the winsorised values."""
    ordered, count = sorted(values), len(values)
    cut = int(TRIMMED * count)
    kept = ordered[cut : count - cut]
    pulled = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = sum(pulled) / count
    deviation = math.sqrt(sum((value - middle) ** 2 for value in pulled) / (count - 1))
    value = sum(kept) / len(kept)
    error = deviation / ((1 - 2 * cut / count) * math.sqrt(count))
    within = student_t(len(kept) - 1, confidence) * error
    return PairDifference(value, value - within, value + within)


class Decision(TypedDict):
    """What is decided from all pairs: fields of `Interleaved`."""

    confidence: float
    differences: dict[str, dict[str, result.Difference]]
    described: list[Described]
    said: str


def decision(order: Sequence[str], values: Values, reports: Sequence[Report]) -> Decision:
    """The decision.

    order: of the pipelines. values: by stage, the figures of both blocks of each pair, and with the
    stage '' those of the whole pipeline. reports: of the runs with these pairs.
    """
    first, second = dict.fromkeys(order)
    of_stages = {stage: pairs for stage, pairs in values.items() if stage}
    outcome = differences(of_stages)
    levels = {
        stage: {
            figure: mean(pair[0][figure] for pair in values[stage] if figure in pair[0])
            for figure in figures
        }
        for stage, figures in outcome.items()
    }
    doubts = [doubt for report in reports for doubt in doubts_of(report)]
    text = as_said(first, second, outcome, levels, doubts)
    return {
        "confidence": CONFIDENCE,
        "differences": reported(outcome, doubted=bool(doubts)),
        "described": other_rows(values),
        "said": f"{text} {needed_of(reports)}".rstrip(),
    }


def pooled(reports: Sequence[Report]) -> Interleaved | None:
    """`interleaved` of several runs of the same: the decision from the pairs of all of them,
    without those of runs that are in doubt if there are others. None if no run has it."""
    having = [report for report in reports if report.interleaved]
    used = [report for report in having if not doubts_of(report)] or having
    turns = [report.interleaved for report in used if report.interleaved]
    if len(having) < 2:
        return turns[0].model_copy(update={"runs": [having[0].run_id]}) if turns else None
    pairs = [pair for of_run in turns for pair in of_run.pairs]
    stages = list(pairs[0].stages) if pairs else []
    values = {stage: [pair.stages[stage] for pair in pairs] for stage in stages}
    values[""] = [pair.costs for pair in pairs]
    changes = {
        "runs": [report.run_id for report in used],
        "blocks": sum(of_run.blocks for of_run in turns),
        "pairs": pairs,
    }
    return turns[0].model_copy(update=changes | decision(turns[0].order, values, used))


def as_said(
    first: str,
    second: str,
    differences: Mapping[str, Mapping[str, PairDifference]],
    levels: Mapping[str, Mapping[str, float]],
    doubts: Sequence[str],
) -> str:
    """The result in words. levels: the first pipeline's values by stage and figure, ms."""
    if not differences:
        least = f"at least {LEAST_PAIRS} pairs are required"
        return f"Too few blocks to compare {second} with {first}: {least}."
    real = [
        (stage, figure, item)
        for stage, figures in differences.items()
        for figure, item in figures.items()
        if item.is_real
    ]
    if not real:
        return f"No significant difference between {second} and {first}. {_would_be(differences)}"
    parts = []
    for word, sign in (("slower", 1), ("faster", -1)):
        cells = [_cell(*each, levels) for each in real if each[2].value * sign > 0]
        parts += [f"{word} in {', '.join(cells)}"] if cells else []
    text = f"{second} is {' and '.join(parts)} than {first}."
    if not doubts:
        return text
    return f"{text} This is not conclusive: {'; '.join(doubts)}."


def _cell(
    stage: str,
    figure: str,
    pair_difference: PairDifference,
    levels: Mapping[str, Mapping[str, float]],
) -> str:
    before = levels[stage][figure]
    share = f", {pair_difference.value / before:+.0%}" if before > 0 else ""
    between = f"between {pair_difference.low:+.3g} and {pair_difference.high:+.3g}"
    return f"{stage} {figure} ({pair_difference.value:+.3g} ms{share}; {between})"


def _would_be(differences: Mapping[str, Mapping[str, PairDifference]]) -> str:
    """The largest difference that may have remained undetected, by the mean: if most outputs take
    the same whole millisecond, `middle` does not move."""
    sizes = [
        f"{stage} {max(abs(each['mean'].low), abs(each['mean'].high)):.2g} ms"
        for stage, each in differences.items()
        if "mean" in each
    ]
    return f"The mean differs by at most: {', '.join(sizes)}." if sizes else ""


def reported(
    differences: Mapping[str, Mapping[str, PairDifference]], *, doubted: bool
) -> dict[str, dict[str, result.Difference]]:
    """The differences as in a report. doubted: no difference is called real."""
    return {
        stage: {
            figure: result.Difference(
                value=difference.value,
                low=difference.low,
                high=difference.high,
                real=difference.is_real and not doubted,
            )
            for figure, difference in figures.items()
        }
        for stage, figures in differences.items()
    }
