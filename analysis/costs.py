"""Costs of a run from the resource use of its services. Pure.

All figures cover the measure phase.
"""

from collections.abc import Mapping, Sequence

from analysis.intervals import mean_bounds
from schemas.protocol import MACHINE, SEEN_WITH_THE_STACK, largest
from schemas.report import Interval, Number, Observing, Resources

# The broker and the pipelines are measured; all other services measure them.
MEASURED = ("kafka",)
OBSERVERS = {"generator", "evaluator", "store"}
COST = "core_seconds_per_million_records"  # key of the cost of a pipeline in reports
MOST_PROCESSES = 8  # of a pipeline, in a report
MISSING_SHARE = 0.05  # above the share lost at the edges of a phase


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
    cost: Number | None, cores: Number, by_sample: Sequence[float]
) -> Interval | None:
    """Bounds of a cost proportional to the mean cores, from the variation of the samples; None if
    there are too few."""
    bounds = mean_bounds(by_sample)
    if cost is None or bounds is None or not cores:
        return None
    return [max(0.0, cost * bound / cores) for bound in bounds]


def cores_by_process(
    cpu_seconds: Mapping[str, float], sampled_s: float
) -> dict[str, Number] | None:
    """Mean cores of each process of a pipeline over the time with samples of the pipeline, the
    MOST_PROCESSES largest and all others together; None if unknown."""
    return rates_by_process(cpu_seconds, sampled_s)


def rates_by_process(amounts: Mapping[str, float], sampled_s: float) -> dict[str, Number] | None:
    """Mean amount a second of each process, as `cores_by_process`."""
    if not amounts or not sampled_s:
        return None
    return {name: of / sampled_s for name, of in largest(amounts, MOST_PROCESSES).items()}


def cost_of_observing(services: Mapping[str, Resources]) -> Observing:
    """Tidegauge's own use: the mean cores, and the share of the total use of the machine. Empty if
    the OBSERVERS were not sampled, as in other containers.

    services: by service, without the pipelines.
    """
    if not services.keys() >= OBSERVERS:
        return Observing()
    own = [used.cpu_cores for name, used in services.items() if name not in (*MEASURED, MACHINE)]
    cores = sum(used or 0 for used in own)
    machine = services.get(MACHINE, Resources()).cpu_cores
    return Observing(cpu_cores=cores, share=cores / machine if machine else None)


def used_by_others(rows: Mapping[str, Resources]) -> Number | None:
    """Mean cores used by processes outside the stack; None if the machine's use is unknown or that
    of the stack, as in containers.

    rows: by service and by pipeline, and of the machine.
    """
    machine = rows.get(MACHINE, Resources()).cpu_cores
    if machine is None or not SEEN_WITH_THE_STACK & rows.keys():
        return None
    ours = sum(used.cpu_cores or 0 for name, used in rows.items() if name != MACHINE)
    return max(0.0, machine - ours)
