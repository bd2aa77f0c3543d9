"""Other differences where a figure changed: settings, versions, the machine. Pure.

A likely cause is anything stored with every run that differs between the last run before and the
first run after. That is a hint, not a proof; causes that are not stored cannot be found.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from analysis.changes.machine import work_of
from analysis.changes.series import Point

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


def likely_causes(before: Sequence[Point], after: Sequence[Point], pipeline: str) -> list[str]:
    """One sentence per difference, likeliest first; those of the measured pipeline before those of
    concurrent ones. Both sides must have at least one run."""
    old, new = facts(before[-1], pipeline), facts(after[0], pipeline)
    found = [
        f"{name}: {_shown(old.get(name))} → {_shown(new.get(name))}"
        for name in sorted({*old, *new}, key=lambda name: (_rank(name), name))
        if old.get(name) != new.get(name)
    ]
    same_work = work_of(before[-1]) == work_of(after[0]) is not None
    slower = _slower(before, after) if same_work else []
    every = _busier(before, after) + slower + found
    left_out = len(every) - MOST_CAUSES
    more = [f"{left_out} further differences"] if left_out > 0 else []
    return every[:MOST_CAUSES] + more


def facts(point: Point, pipeline: str) -> dict[str, Any]:
    """All stored facts of a run that may matter, by path; the measured pipeline's settings as
    `pipelines.*`."""
    request = point.request
    own = {one["name"]: one for one in request["pipelines"]}
    beside = {name: one for name, one in own.items() if name != pipeline}
    workload, environment = request["workload"], request.get("environment", {})
    told = {
        **environment,
        "pipelines": own.get(pipeline, {}),
        "beside": beside,
        "engine_version": point.engine_version,
        "partitions": workload.get("partitions"),
        **{name: workload.get(name) for name in ("phases", "judgement", "validity")},
    }
    return dict(_flat("", told))


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
