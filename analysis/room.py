"""Whether the machine had enough cores for all parts of a run, and which part waited. Pure.

    found = room({"generator": {second: Use(…)}, "machine": {…}}, cores=2)
    room_sentence(found, cores=2)      # empty if there were enough

A runnable thread that does not run waits in the run queue of a processor. waiting_share is the wait
time of a part's threads divided by their wait and run time. It is 0 on an idle machine and ½ if two
threads share one core. It is also high if parts wake at the same moments and the machine is idle in
between. So it indicates a lack of cores only if some task waits for a considerable part of the
time, which pressure (PSI) measures.

Likewise, whether the heap of its JVM limited a pipeline:

    found = heap(samples)        # None without a JVM
    heap_sentence({"flink": found})

Two signs, of which one is enough: garbage collection takes more than GC_SHARE of the processor time
of the pipeline, or the heap stays fuller than FULL_HEAP_SHARE of its maximum. Collectors report the
used heap when they have collected; some update it while it is filled again, so the median counts.

The time of collections is the time that the collectors report, in which threads of the collector
may run at the same time: with several of them the share is a lower bound.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NotRequired, TypedDict

from schemas.protocol import MACHINE, SEEN_WITH_THE_STACK

# Above this share of all cores, used or waited for, the machine is saturated.
FULL_SHARE = 0.9
WAITING_SHARE = 0.4
# A waiting part lacks cores if the machine is crowded: some task waits for half of the time or, if
# that is not measured, this share of the cores is used.
PRESSURE_SHARE, CROWDED_SHARE = 0.5, 0.7
LEAST_CORES = 0.05  # parts that use less are not considered waiting
HEAP = "heap"
GC_SHARE, FULL_HEAP_SHARE = 0.1, 0.9
GIBIBYTE, MEBIBYTE = 2**30, 2**20


class PartUse(TypedDict):
    """Use and wait of one part in some time, for a report; of the machine also the use by others,
    and whether it was saturated. None: not measured."""

    cpu_cores: float
    cpu_share: float
    waiting_share: float | None
    steal_share: NotRequired[float | None]
    cpu_pressure_share: NotRequired[float | None]
    others_cores: NotRequired[float | None]
    saturated: NotRequired[bool]
    waited: NotRequired[list[str]]


@dataclass(frozen=True)
class Use:
    """Use by one part in some time. waited_s: of its threads in run queues; steal_s, pressure_s: of
    the machine: time a hypervisor gave to others, and time some task waited for a processor. None:
    not measured."""

    cpu_s: float
    interval_s: float
    waited_s: float | None = None
    steal_s: float | None = None
    pressure_s: float | None = None


NOTHING = Use(0.0, 0.0)
Uses = Mapping[str, Mapping[int, Use]]
"""By part, or `machine` for the total, and epoch second."""


def added(uses: Iterable[Use]) -> Use:
    """Total use over several times."""
    known = list(uses)

    def total(name: str) -> float | None:
        values = [value for use in known if (value := getattr(use, name)) is not None]
        return sum(values) if values else None

    return Use(
        sum(use.cpu_s for use in known),
        sum(use.interval_s for use in known),
        *(total(name) for name in ("waited_s", "steal_s", "pressure_s")),
    )


def cores_of(use: Use) -> float:
    """Mean cores in use; 0 without samples."""
    return use.cpu_s / use.interval_s if use.interval_s else 0.0


def waiting_share(use: Use) -> float | None:
    """Share of the runnable time in which the part waited for a processor."""
    if use.waited_s is None:
        return None
    wanted_s = use.cpu_s + use.waited_s
    return use.waited_s / wanted_s if wanted_s else 0.0


def steal_share(use: Use, cores: float) -> float | None:
    """Share of all processor time that a hypervisor gave to others."""
    if use.steal_s is None or not use.interval_s:
        return None
    return use.steal_s / (use.interval_s * cores)


def pressure_share(use: Use) -> float | None:
    """Share of the time in which some task of the machine waited for a processor."""
    if use.pressure_s is None or not use.interval_s:
        return None
    return use.pressure_s / use.interval_s


def others_cores(uses: Uses, seconds: Iterable[int] | None = None) -> float | None:
    """Mean cores used by processes outside the run; None if the machine was not sampled, or if the
    collector did not see the stack."""
    if MACHINE not in uses or not SEEN_WITH_THE_STACK & uses.keys():
        return None
    asked = None if seconds is None else list(seconds)
    parts: dict[str, Use] = {
        part: added(of.values() if asked is None else (of.get(at, NOTHING) for at in asked))
        for part, of in uses.items()
    }
    machine = parts.pop(MACHINE)
    if not machine.interval_s:
        return None
    own_s = sum(use.cpu_s for use in parts.values())
    return max(0.0, machine.cpu_s - own_s) / machine.interval_s


def room(uses: Uses, cores: float | None) -> dict[str, PartUse]:
    """Use and wait of each part over the whole time, for a report. The machine also has the use by
    others, and whether it is saturated. Empty without samples."""
    if not cores:
        return {}
    result: dict[str, PartUse] = {}
    for part in sorted(uses, key=lambda part: (part == MACHINE, part)):
        use = added(uses[part].values())
        used = cores_of(use)
        of_part = result[part] = PartUse(
            cpu_cores=used, cpu_share=used / cores, waiting_share=waiting_share(use)
        )
        if part == MACHINE:
            of_part["steal_share"] = steal_share(use, cores)
            of_part["cpu_pressure_share"] = pressure_share(use)
            of_part["others_cores"] = others_cores(uses)
            waited = waited_for_cores(result)
            of_part["saturated"] = bool(waited) or _is_full(result)
            of_part["waited"] = waited
    return result


def waited_for_cores(result: Mapping[str, PartUse]) -> list[str]:
    """The parts of a crowded machine that waited for processors more than WAITING_SHARE, and on a
    full one at least the one that waited most; the longest wait first."""
    parts = {
        part: share
        for part, figures in result.items()
        if part != MACHINE
        and (share := figures["waiting_share"]) is not None
        and figures["cpu_cores"] >= LEAST_CORES
    }
    most = max(parts.values(), default=None)
    is_full, is_crowded = _is_full(result), _is_crowded(result)
    waited = [
        part
        for part, share in parts.items()
        if (is_crowded and share >= WAITING_SHARE) or (is_full and share == most)
    ]
    return sorted(waited, key=lambda part: -parts[part])


def _is_full(parts: Mapping[str, PartUse]) -> bool:
    return _taken_share(parts) >= FULL_SHARE


def _is_crowded(parts: Mapping[str, PartUse]) -> bool:
    pressure = parts[MACHINE].get("cpu_pressure_share") if MACHINE in parts else None
    if pressure is None or _is_full(parts):
        return _taken_share(parts) >= CROWDED_SHARE
    return pressure >= PRESSURE_SHARE


def _taken_share(parts: Mapping[str, PartUse]) -> float:
    """Share of all processor time that was used or given to others by a hypervisor."""
    machine = parts.get(MACHINE)
    return 0.0 if machine is None else machine["cpu_share"] + (machine.get("steal_share") or 0.0)


def room_sentence(parts: Mapping[str, PartUse], cores: float | None) -> str:
    """Whether the machine is saturated, and which parts waited; empty if it is not."""
    machine = parts.get(MACHINE)
    if machine is None or not machine.get("saturated"):
        return ""
    waits = [f"{part} {parts[part]['waiting_share']:.0%}" for part in machine["waited"]]
    of = f" of {cores:g}" if cores else ""
    text = f"Saturated: {machine['cpu_cores']:.2f}{of} cores were in use"
    if not waits:
        return text + "."
    return f"{text}. Share of runnable time spent waiting for a core: {', '.join(waits)}."


class HeapUse(TypedDict):
    """The heap of a pipeline's JVM, for a report. max_bytes, used_share: None if not known.
    gc_share: of the processor time. limited: whether the heap limited the pipeline."""

    max_bytes: int | None
    used_share: float | None
    gc_share: float
    limited: bool


@dataclass(frozen=True)
class HeapSample:
    """A pipeline in an interval. gc_s: time of its collectors, None without a JVM. used_bytes,
    max_bytes: of its heap, None if not known."""

    interval_s: float
    cpu_s: float
    gc_s: float | None
    used_bytes: int | None = None
    max_bytes: int | None = None


def heap(samples: Iterable[HeapSample]) -> HeapUse | None:
    """The use of a heap; None without a JVM or its samples. A
    pipeline that hardly uses the processor is not limited by collections."""
    known = [sample for sample in samples if sample.gc_s is not None]
    cpu_s = sum(each.cpu_s for each in known)
    if not known or not cpu_s:
        return None
    gc_share = min(1.0, sum(each.gc_s or 0.0 for each in known) / cpu_s)
    shares = [
        each.used_bytes / each.max_bytes
        for each in known
        if each.used_bytes is not None and each.max_bytes
    ]
    used_share = median(shares) if shares else None
    is_at_work = cpu_s / sum(each.interval_s for each in known) >= LEAST_CORES
    return {
        "max_bytes": max((each.max_bytes for each in known if each.max_bytes), default=None),
        "used_share": used_share,
        "gc_share": gc_share,
        "limited": (is_at_work and gc_share > GC_SHARE) or (used_share or 0.0) > FULL_HEAP_SHARE,
    }


def limited_pipelines(heaps: Mapping[str, HeapUse]) -> list[str]:
    """The pipelines that their heap limited."""
    return [name for name, each in heaps.items() if each["limited"]]


def heap_sentence(heaps: Mapping[str, HeapUse]) -> str:
    """Which pipelines their heap limited, and by which sign; empty if none."""
    return " ".join(_sentence(name, heaps[name]) for name in limited_pipelines(heaps))


def _sentence(name: str, heap_of_pipeline: HeapUse) -> str:
    size = size_in_words(heap_of_pipeline["max_bytes"])
    sign = f"garbage collection took {heap_of_pipeline['gc_share']:.0%} of its processor time"
    if heap_of_pipeline["gc_share"] <= GC_SHARE:
        sign = f"{heap_of_pipeline['used_share']:.0%} of it were in use after collections"
    return f"{name} was limited by its heap{f' of {size}' if size else ''}: {sign}."


def size_in_words(size_bytes: int | None) -> str:
    """A size in GiB or MiB; empty if not known."""
    if not size_bytes:
        return ""
    if size_bytes >= GIBIBYTE:
        return f"{size_bytes / GIBIBYTE:.3g} GiB"
    return f"{size_bytes / MEBIBYTE:.0f} MiB"
