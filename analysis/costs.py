"""Costs of a run from the resource use of its services. Pure.

All figures cover the measure phase; see `report.build_report` for the rows.
"""

from collections.abc import Sequence
from typing import Any

from analysis.intervals import mean_bounds
from schemas.protocol import MACHINE

# The broker and the pipelines are measured; all other services measure them.
MEASURED = ("kafka",)
OBSERVERS = {"generator", "evaluator", "store"}
COST = "core_seconds_per_million_records"  # key of the cost of a pipeline in reports
MISSING_SHARE = 0.05  # above the share lost at the edges of a phase
Figures = dict[str, Any]


def core_seconds_per_million_records(
    cpu_seconds: float, records: int, *, machine_s: float, measured_s: float
) -> float | None:
    """CPU time of a pipeline per million input records; None without input.

    cpu_seconds: sum of the pipeline's samples. machine_s: seconds covered by samples of the
    machine, of measured_s; 0 without samples. If samples of more than MISSING_SHARE are missing,
    the CPU time is extrapolated. Time in which the pipeline had no process costs nothing.
    """
    if not records:
        return None
    is_short = 0 < machine_s < (1 - MISSING_SHARE) * measured_s
    return 1e6 * cpu_seconds * (measured_s / machine_s if is_short else 1.0) / records


def scaled_bounds(
    cost: float | None, cores: float, by_sample: Sequence[float]
) -> list[float] | None:
    """Bounds of a cost proportional to the mean cores, from the variation of the samples; None if
    there are too few."""
    bounds = mean_bounds(by_sample)
    if cost is None or bounds is None or not cores:
        return None
    return [max(0.0, cost * bound / cores) for bound in bounds]


def cost_of_observing(services: dict[str, Figures]) -> Figures:
    """Tidegauge's own use: cpu_cores, the mean, and share, of the total use of the machine (None if
    unknown). Empty if the OBSERVERS were not sampled, as in other containers.

    services: mean cpu_cores by service, without the pipelines.
    """
    own = [used["cpu_cores"] for name, used in services.items() if name not in (*MEASURED, MACHINE)]
    if not services.keys() >= OBSERVERS:
        return {}
    machine = services.get(MACHINE, {}).get("cpu_cores")
    return {"cpu_cores": sum(own), "share": sum(own) / machine if machine else None}


def used_by_others(rows: dict[str, Figures]) -> float | None:
    """Mean cores used by processes outside the stack; None if the machine's use is unknown.

    rows: mean cpu_cores by service and by pipeline, and of the machine.
    """
    if not rows.get(MACHINE):
        return None
    ours: float = sum(u["cpu_cores"] for name, u in rows.items() if u and name != MACHINE)
    machine: float = rows[MACHINE]["cpu_cores"]
    return max(0.0, machine - ours)
