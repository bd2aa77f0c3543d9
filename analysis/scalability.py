"""Scaling of a pipeline with its workers: a law fitted to measured rates, and which rates are not
evidence. Pure.

The Universal Scalability Law (Gunther 2008, arXiv:0808.1431) gives the rate of N workers:

    X(N) = λN / (1 + σ(N - 1) + κN(N - 1))

λ is the rate of one worker; contention σ is the serial share of the work, and coherency κ the cost
of each pair of workers. N / X(N) is linear in 1/λ, σ/λ and κ/λ, so the law with the least relative
errors follows from linear least squares, with 0 ≤ σ ≤ 1 and κ ≥ 0.

It is fitted to the middle of the bounds between which a search places the capacity. Intervals are
percentiles of laws fitted to resampled rates: for each number of workers one of its searches is
drawn, and a rate within its bounds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from analysis.bootstrap import SEED
from analysis.lateness import PIPELINE
from schemas import report as result
from schemas.report import Bounded, Predicted, Scalability, Workers

UNKNOWNS = 3
RESAMPLES = 1_000
CONFIDENCE = 0.95
FURTHER = (2, 4)  # multiples of the most workers measured
NAMED_PARTS = 3


@dataclass(frozen=True)
class ScalingPoint:
    """Result with one number of workers.

    bounds: for each search, the rates between which it places the capacity; the upper one is None
    if no rate was too high. limited_by: the parts that limited the rates. free_cores: cores not
    used by other parts, None if unknown; taken: use by those parts. cores_each: cores that a worker
    can use.
    """

    workers: int
    bounds: tuple[tuple[float, float | None], ...] = ()
    limited_by: tuple[str, ...] = ()
    cores: float | None = None
    free_cores: float | None = None
    taken: Mapping[str, float] = field(default_factory=dict)
    cores_each: float = 1.0

    @property
    def capacity(self) -> float:
        """The middle of the bounds, or for several searches the median of these."""
        middles = [low if high is None else (low + high) / 2 for low, high in self.bounds]
        return float(np.median(middles))

    @property
    def objection(self) -> str:
        """Why the rate is not evidence of the pipeline's scaling; empty if it is."""
        others = [part for part in self.limited_by if part != PIPELINE]
        if not self.bounds:
            limit = f", limited by the {' and the '.join(self.limited_by)}"
            return "no valid search found a rate" + (limit if self.limited_by else "")
        if any(high is None for _low, high in self.bounds):
            return "every rate tried was sustained"
        needed = self.workers * self.cores_each
        if self.cores and needed > self.cores:
            return f"the machine has {self.cores:g} cores{self._taken}"
        if self.free_cores is None:
            return "the number of free cores is unknown"
        if needed > self.free_cores:
            return f"{self.free_cores:.1f} of {self.cores:g} cores were free{self._taken}"
        return f"the {' and the '.join(others)} was the limit" if others else ""

    @property
    def _taken(self) -> str:
        most = sorted(self.taken.items(), key=lambda each: -each[1])[:NAMED_PARTS]
        used = ", ".join(f"{part} {cores:.2f}" for part, cores in most)
        return f"; in use by others: {used}" if used else ""


@dataclass(frozen=True)
class FittedLaw:
    """The law with its three parameters."""

    rate_of_one: float
    contention: float
    coherency: float

    def rate(self, workers: int) -> float:
        """The rate with this number of workers."""
        more = workers - 1
        slower = 1 + self.contention * more + self.coherency * workers * more
        return self.rate_of_one * workers / slower

    @property
    def peak_workers(self) -> int | None:
        """The number of workers with the highest rate; None if more are always better."""
        if not self.coherency:
            return None
        about = math.sqrt((1 - self.contention) / self.coherency)
        return max((max(1, math.floor(about)), max(1, math.ceil(about))), key=self.rate)


def fitted(rates: Sequence[tuple[int, float]]) -> FittedLaw | None:
    """The law with the least squares of relative errors, for pairs of workers and rate; None if
    fewer than three numbers of workers leave it undetermined."""
    if len({workers for workers, _rate in rates}) < UNKNOWNS:
        return None
    workers, rate = (np.asarray(each, dtype=np.float64) for each in zip(*rates, strict=True))
    more = workers - 1
    outcome: list[tuple[float, FittedLaw]] = []
    # The best law within the bounds is the unconstrained one or has a parameter on its bound.
    for fixed, crosses in product((None, 0.0, 1.0), (True, False)):
        columns = [np.ones_like(more), more] if fixed is None else [1 + fixed * more]
        columns += [workers * more] if crosses else []
        matrix = np.stack(columns, axis=1) * (rate / workers)[:, None]
        solved = np.linalg.lstsq(matrix, np.ones_like(more))[0]
        inverse = float(solved[0])
        if inverse <= 0:
            continue
        contention = float(solved[1]) / inverse if fixed is None else fixed
        coherency = float(solved[-1]) / inverse if crosses else 0.0
        if 0 <= contention <= 1 and coherency >= 0:
            errors = float(np.square(matrix @ solved - 1).sum())
            outcome.append((errors, FittedLaw(1 / inverse, contention, coherency)))
    return min(outcome, key=lambda each: each[0])[1]


@dataclass(frozen=True)
class Sized:
    """What grows in a series, for sentences. each: why a number of it is evidence."""

    singular: str = "worker"
    plural: str = "workers"
    numbers: str = "numbers of workers"
    each: str = "each worker had a core"

    def counted(self, numbers: Sequence[int]) -> str:
        """`1 worker`, `1, 2 and 4 workers`."""
        texts = [str(number) for number in numbers]
        words = " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]
        return f"{words} {self.singular if list(numbers) == [1] else self.plural}"


WORKERS = Sized()


def scalability(
    series: str,
    pipeline: str,
    points: Sequence[ScalingPoint],
    workers: Sequence[Workers],
    sized: Sized = WORKERS,
) -> Scalability:
    """The result of a series. points: in the order of workers, which describe the same. The law is
    None if it is undetermined; predictions are measured and extrapolated numbers of workers."""
    evidence = [point for point in points if not point.objection]
    known = [point for point in points if point.bounds]
    used = evidence if len(evidence) >= UNKNOWNS else known
    law = fitted([(point.workers, point.capacity) for point in used])
    laws = [] if law is None else resampled(used)
    reported = None if law is None else _reported(law, laws, used)
    predicted = [] if law is None else _predicted(law, laws, points)
    numbers = [point.workers for point in evidence]
    return Scalability(
        series=series,
        pipeline=pipeline,
        points=[
            of.model_copy(update={"objection": point.objection})
            for of, point in zip(workers, points, strict=True)
        ],
        law=reported,
        predicted=predicted,
        evidence=numbers,
        confidence=CONFIDENCE,
        said=_said(points, numbers, reported, predicted, sized),
    )


def _reported(
    law: FittedLaw, laws: Sequence[FittedLaw], used: Sequence[ScalingPoint]
) -> result.Law:
    return result.Law(
        of_workers=[point.workers for point in used],
        rate_of_one=_interval(law.rate_of_one, [drawn.rate_of_one for drawn in laws]),
        contention=_interval(law.contention, [drawn.contention for drawn in laws]),
        coherency=_interval(law.coherency, [drawn.coherency for drawn in laws]),
        peak_workers=law.peak_workers,
    )


def _predicted(
    law: FittedLaw, laws: Sequence[FittedLaw], points: Sequence[ScalingPoint]
) -> list[Predicted]:
    most = max(point.workers for point in points)
    asked = [point.workers for point in points] + [most * times for times in FURTHER]
    return [
        Predicted(
            workers=workers,
            is_measured=workers <= most,
            rate_per_second=_interval(law.rate(workers), [drawn.rate(workers) for drawn in laws]),
        )
        for workers in asked
    ]


def resampled(points: Sequence[ScalingPoint]) -> list[FittedLaw]:
    """Laws fitted to resampled rates, from a fixed seed."""
    random = np.random.default_rng(SEED)
    laws = []
    for _ in range(RESAMPLES):
        rates = []
        for point in points:
            low, high = point.bounds[random.integers(len(point.bounds))]
            rates.append((point.workers, low if high is None else random.uniform(low, high)))
        law = fitted(rates)
        assert law is not None
        laws.append(law)
    return laws


def _interval(value: float, drawn: Sequence[float]) -> Bounded:
    share = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (share, 1 - share))
    return Bounded(value=value, low=float(low), high=float(high))


def _said(
    points: Sequence[ScalingPoint],
    evidence: Sequence[int],
    law: result.Law | None,
    predicted: Sequence[Predicted],
    sized: Sized,
) -> list[str]:
    """Sentences: what is evidence, what is not and why, the law, and its limits."""
    sentences = [_evidence(evidence, sized)]
    sentences += [
        f"{sized.counted([point.workers])} {_is([point.workers])} not evidence: {point.objection}."
        for point in points
        if point.objection
    ]
    if law is None:
        having = [point.workers for point in points if point.bounds]
        sentences.append(
            f"A law with {UNKNOWNS} unknowns needs rates for {UNKNOWNS} {sized.numbers}; there "
            f"{_is([len(having)])} {len(having)}, so no law is fitted."
        )
        return sentences
    share, pair = law.contention, law.coherency
    sentences.append(
        f"Universal Scalability Law of {sized.counted(law.of_workers)}: one sustains "
        f"{_rates(law.rate_of_one)}, contention {_shares(share)}, coherency {_shares(pair)}."
    )
    if set(law.of_workers) - set(evidence):
        sentences.append("The law includes limits of this machine.")
    peak = law.peak_workers
    further = [
        f"{each.workers} would sustain {_rates(each.rate_per_second)}"
        for each in predicted
        if not each.is_measured
    ]
    sentences.append(
        f"Extrapolated beyond {sized.counted([max(point.workers for point in points)])}: "
        + " and ".join(further)
        + (f"; the rate is highest with {peak}." if peak else ".")
    )
    return sentences


def _evidence(evidence: Sequence[int], sized: Sized) -> str:
    if not evidence:
        return "No result is evidence of how the pipeline scales."
    return (
        f"{sized.counted(evidence)} {_is(evidence)} evidence of how the pipeline scales: "
        f"{sized.each}, and the pipeline was the limit."
    )


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 and list(numbers) == [1] else "are"


def _rates(figure: Bounded) -> str:
    return f"{figure.value:,.0f}/s ({figure.low:,.0f} to {figure.high:,.0f})"


def _shares(figure: Bounded) -> str:
    low, high = (f"{100 * (bound or 0):.3g}" for bound in (figure.low, figure.high))
    return f"{100 * figure.value:.3g} % ({low} to {high} %)"
