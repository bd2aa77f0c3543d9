"""Other differences where a figure changed: settings, versions, the machine. Pure.

A likely cause is anything stored with every run that differs between the last run before and the
first run after. That is a hint, not a proof; causes that are not stored cannot be found.

The machine's pace has an effect of its own on a latency, since shared cores become slower and
faster for hours; `without_machine` removes it. The generator does the same work per record in all
runs of a series, so its CPU time per record says how slow the machine was. A latency grows by a
power of it, because waiting for cores grows faster than computing. The exponent is the one that
leaves the smallest absolute differences between runs near each other: few of these pairs are on two
sides of a change of the pipeline. Differences of consecutive runs alone would give too small an
exponent, because errors of the CPU time dominate them.

Another revision of Tidegauge may have another generator. If the CPU time differs more between its
first runs and those before than it did anywhere before, that is taken as the generator's.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from analysis.changes.series import Point

SAME_PROGRAM = ("tidegauge", "python")  # facts that change the generator's own CPU time
LEAST_RUNS = 12
REACH = 16  # runs
EDGE = 4  # runs on each side of a step
LEAST_STEP = 0.03  # smallest step that can be the generator's
LARGEST_EXPONENT = 4.0

Work = tuple[str, ...]
# In order of likelihood: the pipeline's own settings first, our revision last.
PARTS = (
    "pipelines",
    "engine_version",
    "partitions",
    "pipelines_kept",
    "packages",
    "java",
    "broker",
    "processor",
    "cores",
    "memory_bytes",
)
REST = ("host", "system", "python", "judgement", "phases", "validity", "tidegauge")
IGNORED = ("summary", "run_id", "seed", "suite", "step_of", "name")
BUSIER_CORES = 0.5
SLOWER = 0.1
MOST_CAUSES = 50


def without_machine(points: Sequence[Point]) -> list[float]:
    """The values adjusted to the median pace of the machine. Runs without the generator's CPU time
    are unchanged, and all are with fewer than LEAST_RUNS others, or if a value is not positive."""
    values = [point.value for point in points]
    paces = _paces(points)
    if len(paces) < LEAST_RUNS or min(values) <= 0:
        return values
    exponent = _exponent(
        [(math.log(values[b] / values[a]), paces[b] - paces[a]) for a, b in _near([*paces])]
    )
    usual = median(paces.values())
    for n, pace in paces.items():
        values[n] /= math.exp(exponent * (pace - usual))
    return values


def work_of(point: Point) -> Work | None:
    """What the generator's CPU time per record depends on besides the series; None if the rate
    varies within the series, because a search finds it."""
    workload = point.request["workload"]
    if workload.get("search") or workload.get("sustainable_share"):
        return None
    environment = point.request.get("environment", {})
    program = [str(environment.get(name)) for name in SAME_PROGRAM]
    return (*program, str(workload.get("transport", "kafka")))


def _paces(points: Sequence[Point]) -> dict[int, float]:
    """Logarithm of the generator's CPU time per record by index, in order, as of one generator."""
    logs: dict[Work, dict[int, float]] = {}
    for n, point in enumerate(points):
        work = work_of(point)
        if work is not None and point.generator_us:
            logs.setdefault(work, {})[n] = math.log(point.generator_us)
    result: dict[int, float] = {}
    for own in logs.values():
        first = min(own)
        before = [result[n] for n in sorted(result) if n < first]
        step = _step(before, [*own.values()])
        usual = (abs(_step(before[:n], before[n:])) for n in range(EDGE, len(before) - EDGE + 1))
        of_generator = step if abs(step) > max((LEAST_STEP, *usual)) else 0.0
        result |= {n: log - of_generator for n, log in own.items()}
    return dict(sorted(result.items()))


def _step(before: Sequence[float], after: Sequence[float]) -> float:
    """Difference between the last values before and the first after; 0 without values before."""
    return median(after[:EDGE]) - median(before[-EDGE:]) if before else 0.0


def _near(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of runs at most REACH apart."""
    for place, first in enumerate(numbers):
        for second in numbers[place + 1 : place + 1 + REACH]:
            yield first, second


def _exponent(differences: Sequence[tuple[float, float]]) -> float:
    """The k, 0 to LARGEST_EXPONENT, with the least sum of |value - k · pace| over the differences
    (value, pace): the median of the ratios, weighted by the pace."""
    ratios = sorted((value / pace, abs(pace)) for value, pace in differences if pace)
    half, seen = sum(weight for _, weight in ratios) / 2, 0.0
    for ratio, weight in ratios:
        seen += weight
        if seen >= half:
            return min(max(ratio, 0.0), LARGEST_EXPONENT)
    return 0.0


def likely_causes(before: Sequence[Point], after: Sequence[Point], pipeline: str) -> list[str]:
    """One sentence per difference, likeliest first; those of the measured pipeline before those of
    concurrent ones. Both sides must have at least one run."""
    old, new = facts(before[-1], pipeline), facts(after[0], pipeline)
    result = [
        f"{name}: {_shown(old.get(name))} → {_shown(new.get(name))}"
        for name in sorted({*old, *new}, key=lambda name: (_rank(name), name))
        if old.get(name) != new.get(name)
    ]
    same_work = work_of(before[-1]) == work_of(after[0]) is not None
    slower = _slower(before, after) if same_work else []
    every = _busier(before, after) + slower + result
    left_out = len(every) - MOST_CAUSES
    more = [f"{left_out} further differences"] if left_out > 0 else []
    return every[:MOST_CAUSES] + more


def facts(point: Point, pipeline: str) -> dict[str, Any]:
    """All stored facts of a run that may matter, by path; the measured pipeline's settings as
    `pipelines.*`."""
    request = point.request
    own = {each["name"]: each for each in request["pipelines"]}
    beside = {name: each for name, each in own.items() if name != pipeline}
    workload, environment = request["workload"], request.get("environment", {})
    recorded = {
        **environment,
        "pipelines": own.get(pipeline, {}),
        "beside": beside,
        "engine_version": point.engine_version,
        "partitions": workload.get("partitions"),
        **{name: workload.get(name) for name in ("phases", "judgement", "validity")},
    }
    return dict(_flat("", recorded))


def _flat(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        inner = [(key, each) for key, each in value.items() if key not in IGNORED]
        return [pair for key, each in inner for pair in _flat(f"{path}.{key}".strip("."), each)]
    return [(path, value)]


def _rank(name: str) -> int:
    first = name.split(".", maxsplit=1)[0]
    order = (*PARTS, "beside", *REST)
    return order.index(first) if first in order else len(order)


def _busier(before: Sequence[Point], after: Sequence[Point]) -> list[str]:
    old, new = (_median([p.others_cores for p in side]) for side in (before, after))
    if old is None or new is None or abs(new - old) < BUSIER_CORES:
        return []
    return [f"CPU use by other processes: {max(0, old):.1f} → {max(0, new):.1f} cores"]


def _slower(before: Sequence[Point], after: Sequence[Point]) -> list[str]:
    """If the same generator takes more CPU time per record for the same work, the machine is
    slower."""
    old, new = (_median([p.generator_us for p in side]) for side in (before, after))
    if not old or not new or max(old, new) < (1 + SLOWER) * min(old, new):
        return []
    pace = "slower" if new > old else "faster"
    return [
        f"machine: {pace}; CPU time of the generator per record {old:.3g} → "
        f"{new:.3g} µs ({new / old - 1:+.0%})"
    ]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _shown(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)
