"""Two pipelines measured in turns, in blocks of one load: how they differ, and what of it is real.

Neighbouring blocks make a pair, so what drifts cancels, the more as the order is A, B, B, A. Of
each pair the figures of one block are taken from those of the other. Their mean without the tenth
that is farthest off at either end has the interval of Tukey and McLaughlin (1963). All intervals of
a run hold together with CONFIDENCE (Bonferroni), so that of twenty runs of the same at most one is
said to differ. Pure.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.intervals import LEVELS, student_t
from schemas.percentiles import quantile
from schemas.protocol import Interleaving

CONFIDENCE = 0.95
TRIMMED = 0.1
LEAST_PAIRS = 5
# Outputs of a block that a percentile needs, so that there are some above it.
LEAST_OUTPUTS = {"p50": 10, "p95": 40, "p99": 200, "mean": 10, "middle": 10}
FIGURES = tuple(LEAST_OUTPUTS)
Latencies = Mapping[int, Mapping[int, int]]  # by second of output (epoch): latency in ms: count


@dataclass(frozen=True)
class Turns:
    """When it was whose turn: epoch seconds."""

    said: Interleaving
    load_start_s: int
    measured_s: tuple[int, int]

    def seconds_of(self, pipeline: str) -> set[int]:
        """The measured seconds that were its turn."""
        return {second for second in range(*self.measured_s) if self.of(second) == pipeline}

    def of(self, second: int) -> str:
        """Whose turn a second of the load was."""
        return self.said.turn(second - self.load_start_s)


@dataclass(frozen=True)
class Block:
    """A time in which the load went to one pipeline: epoch seconds, the end exclusive."""

    pipeline: str
    start_s: int
    end_s: int


@dataclass(frozen=True)
class Difference:
    """Of the second pipeline from the first in one figure, ms, and between what bounds it is."""

    value: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        """Whether it is more than what blocks vary by."""
        return self.low > 0 or self.high < 0


def blocks(
    order: Sequence[str], block_s: int, first_s: int, measured_s: tuple[int, int]
) -> list[Block]:
    """The whole blocks within what was measured (epoch seconds), in the order of their time.
    first_s: when the first block of all began, with which `order` begins."""
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


def paired(found: Sequence[Block], first: str, second: str) -> list[tuple[Block, Block]]:
    """Neighbours of which one is of each pipeline, each block once; of the first pipeline first."""
    pairs, place = [], 0
    while place + 1 < len(found):
        two = {one.pipeline: one for one in found[place : place + 2]}
        if set(two) == {first, second}:
            pairs.append((two[first], two[second]))
            place += 2
        else:
            place += 1
    return pairs


def outputs_of(
    seconds: Latencies, found: Sequence[Block], edge_s: int
) -> dict[Block, Counter[int]]:
    """Latencies of the outputs whose latest input came within each block, but not within edge_s of
    its ends: there the pipeline has just begun, or waits for what comes in its next block."""
    outputs: dict[Block, Counter[int]] = {block: Counter() for block in found}
    inside = {
        second: block
        for block in found
        for second in range(block.start_s + edge_s, block.end_s - edge_s)
    }
    for at_s, latencies in seconds.items():
        for latency_ms, count in latencies.items():
            block = inside.get((1000 * at_s + 500 - latency_ms) // 1000)
            if block is not None:
                outputs[block][latency_ms] += count
    return outputs


def figures_of(outputs: Counter[int]) -> dict[str, float]:
    """Percentiles and mean of a block, and `middle`, the mean of the middle half of its outputs:
    what the median is, but below a millisecond, because the rounding of two time stamps cancels in
    a mean. Without those that it has too few outputs for."""
    total = outputs.total()
    found: dict[str, float] = {}
    for figure, least in LEAST_OUTPUTS.items():
        if total < least:
            continue
        if figure == "mean":
            found[figure] = sum(ms * count for ms, count in outputs.items()) / total
        elif figure == "middle":
            found[figure] = _middle(outputs)
        else:
            found[figure] = float(quantile(outputs, LEVELS[figure]) or 0)
    return found


def _middle(outputs: Counter[int]) -> float:
    begin, end = 0.25 * outputs.total(), 0.75 * outputs.total()
    seen, found = 0.0, 0.0
    for latency_ms, count in sorted(outputs.items()):
        found += latency_ms * max(0.0, min(seen + count, end) - max(seen, begin))
        seen += count
    return found / (end - begin)


def differences(
    values: Mapping[str, Sequence[tuple[Mapping[str, float], Mapping[str, float]]]],
) -> dict[str, dict[str, Difference]]:
    """By stage and figure. values: by stage, the figures of both blocks of each pair."""
    cells = {
        (stage, figure): [b[figure] - a[figure] for a, b in pairs if figure in a and figure in b]
        for stage, pairs in values.items()
        for figure in FIGURES
    }
    known = {cell: steps for cell, steps in cells.items() if len(steps) >= LEAST_PAIRS}
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(known))
    found: dict[str, dict[str, Difference]] = {}
    for (stage, figure), steps in known.items():
        found.setdefault(stage, {})[figure] = trimmed_mean(steps, confidence)
    return found


def trimmed_mean(values: Sequence[float], confidence: float) -> Difference:
    """The mean without the TRIMMED share at either end, with its interval: the deviation is that of
    the values of which those ends are pulled in to what is left (winsorised)."""
    ordered, count = sorted(values), len(values)
    cut = int(TRIMMED * count)
    kept = ordered[cut : count - cut]
    pulled = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = sum(pulled) / count
    deviation = math.sqrt(sum((value - middle) ** 2 for value in pulled) / (count - 1))
    value = sum(kept) / len(kept)
    error = deviation / ((1 - 2 * cut / count) * math.sqrt(count))
    within = student_t(len(kept) - 1, confidence) * error
    return Difference(value, value - within, value + within)


def as_said(
    first: str,
    second: str,
    found: Mapping[str, Mapping[str, Difference]],
    levels: Mapping[str, Mapping[str, float]],
    doubts: Sequence[str],
) -> str:
    """The decision in words. levels: by stage and figure, what the first pipeline had, ms."""
    if not found:
        least = f"at least {LEAST_PAIRS} pairs are needed"
        return f"Too few blocks to tell {second} from {first}: {least}."
    real = [
        (stage, figure, one)
        for stage, figures in found.items()
        for figure, one in figures.items()
        if one.is_real
    ]
    if not real:
        return f"No difference can be told between {second} and {first}. {_would_be(found)}"
    parts = []
    for word, sign in (("slower", 1), ("faster", -1)):
        cells = [_cell(*each, levels) for each in real if each[2].value * sign > 0]
        parts += [f"{word} in {', '.join(cells)}"] if cells else []
    said = f"{second} is {' and '.join(parts)} than {first}."
    if not doubts:
        return said
    return f"{said} None of it is called real: {'; '.join(doubts)}."


def _cell(
    stage: str, figure: str, one: Difference, levels: Mapping[str, Mapping[str, float]]
) -> str:
    before = levels[stage][figure]
    share = f", {one.value / before:+.0%}" if before > 0 else ""
    return (
        f"{stage} {figure} ({one.value:+.3g} ms{share}; between {one.low:+.3g} and {one.high:+.3g})"
    )


def _would_be(found: Mapping[str, Mapping[str, Difference]]) -> str:
    """How large a difference may be that was not seen, by the mean: where most outputs take the
    same whole millisecond the middle stands still."""
    sizes = [
        f"{stage} {max(abs(one['mean'].low), abs(one['mean'].high)):.2g} ms"
        for stage, one in found.items()
        if "mean" in one
    ]
    return f"The mean differs by at most: {', '.join(sizes)}." if sizes else ""


def as_json(found: Mapping[str, Mapping[str, Difference]], *, doubted: bool) -> dict[str, Any]:
    """The key `differences` of a report. doubted: nothing is called real."""
    return {
        stage: {
            figure: {
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "real": one.is_real and not doubted,
            }
            for figure, one in figures.items()
        }
        for stage, figures in found.items()
    }
