"""Whether the heap of its JVM limited a pipeline. Pure.

    found = heap(samples)        # None without a JVM
    heap_sentence({"flink": found})

Two signs, of which one is enough: garbage collection takes more than GC_SHARE of the processor time
of the pipeline, or the heap stays fuller than FULL_SHARE of its maximum. Collectors report the used
heap when they have collected; some update it while it is filled again, so the median counts.

The time of collections is the time that the collectors report, in which threads of the collector
may run at the same time: with several of them the share is a lower bound.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.room import LEAST_CORES

HEAP = "heap"
GC_SHARE, FULL_SHARE = 0.1, 0.9
GIBIBYTE, MEBIBYTE = 2**30, 2**20


@dataclass(frozen=True)
class HeapSample:
    """A pipeline in an interval. gc_s: time of its collectors, None without a JVM. used_bytes,
    max_bytes: of its heap, None if not known."""

    interval_s: float
    cpu_s: float
    gc_s: float | None
    used_bytes: int | None = None
    max_bytes: int | None = None


def heap(samples: Iterable[HeapSample]) -> dict[str, Any] | None:
    """`max_bytes`, `used_share`, `gc_share` and `limited`; None without a JVM or its samples. A
    pipeline that hardly uses the processor is not limited by collections."""
    known = [one for one in samples if one.gc_s is not None]
    cpu_s = sum(one.cpu_s for one in known)
    if not known or not cpu_s:
        return None
    gc_share = min(1.0, sum(one.gc_s or 0.0 for one in known) / cpu_s)
    shares = [
        one.used_bytes / one.max_bytes
        for one in known
        if one.used_bytes is not None and one.max_bytes
    ]
    used_share = median(shares) if shares else None
    is_at_work = cpu_s / sum(one.interval_s for one in known) >= LEAST_CORES
    return {
        "max_bytes": max((one.max_bytes for one in known if one.max_bytes), default=None),
        "used_share": used_share,
        "gc_share": gc_share,
        "limited": (is_at_work and gc_share > GC_SHARE) or (used_share or 0.0) > FULL_SHARE,
    }


def limited_pipelines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The pipelines that their heap limited."""
    return [name for name, one in found.items() if one["limited"]]


def heap_sentence(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which pipelines their heap limited, and by which sign; empty if none."""
    return " ".join(_sentence(name, found[name]) for name in limited_pipelines(found))


def _sentence(name: str, found: Mapping[str, Any]) -> str:
    size = size_in_words(found["max_bytes"])
    sign = f"garbage collection took {found['gc_share']:.0%} of its processor time"
    if found["gc_share"] <= GC_SHARE:
        sign = f"{found['used_share']:.0%} of it were in use after collections"
    return f"{name} was limited by its heap{f' of {size}' if size else ''}: {sign}."


def size_in_words(size_bytes: int | None) -> str:
    """A size in GiB or MiB; empty if not known."""
    if not size_bytes:
        return ""
    if size_bytes >= GIBIBYTE:
        return f"{size_bytes / GIBIBYTE:.3g} GiB"
    return f"{size_bytes / MEBIBYTE:.0f} MiB"
