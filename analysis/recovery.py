"""Recovery of a pipeline from a burst, a rise of the load, a kill, or a backlog at its start.

Pure: uses the median latency and the number of outputs per second of output time, and after bursts
the number of outputs by latency. Latency is high
while the median of a second exceeds 1.5 times the normal level. For a kill, that is the level
before the first one; for bursts and rises the lower of the levels before the first and at the end
of each; for a start the level at the end, unless latency is then still high or still falls. The
resolution is one second.

The outage of a kill is the longest time without output from it on that ends with an output before
the next kill. It has not ended if a silence up to the next kill is longer by a second or more.

Its extra core-seconds are those of the pipeline from the second of the kill until latency is
normal, minus those that it used in as many seconds before the first kill, by the mean of the
measure phase. A sample counts for the share of its interval that lies in such a time. They are
negative if the pipeline saved more during the outage than its start and the backlog cost.

The 99th percentile after a burst is that of all outputs from the second of the burst until latency
is normal, at least of that second; until the end of its period if it never was.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any

from schemas.load import Shape
from schemas.percentiles import quantile
from schemas.report import Recovery

HIGH = 1.5
LEAST_BEFORE_S = 3  # for a level before the first burst
# After a start: lower latencies are no backlog, and slower changes over the last third are none.
BACKLOG_MS, CHANGE_MS, CHANGE_SHARE = 1_000.0, 500.0, 0.1
SAMPLED = 0.9  # share of a time that samples must cover
Medians = Mapping[int, float]  # epoch seconds of output time → milliseconds
Latencies = Mapping[int, Mapping[int, int]]  # epoch seconds of output time → outputs by latency
NO_LATENCIES: Latencies = MappingProxyType({})


@dataclass(frozen=True)
class Disturbance:
    """An event at `at_s`, examined until `until_s`, epoch seconds.

    kind: burst, rise, kill or start; name: for display. since_s: begin of the measure phase.
    """

    kind: str
    name: str
    at_s: int
    until_s: int
    since_s: int = 0


@dataclass(frozen=True)
class CpuTime:
    """Samples of CPU time. used: of a pipeline, each with the end (epoch seconds) and length (s) of
    its interval and CPU seconds; there are none while no process of it runs. sampled: ends and
    lengths of all intervals with samples, as of the machine."""

    used: Sequence[tuple[float, float, float]] = ()
    sampled: Sequence[tuple[float, float]] = ()

    def seconds(self, from_s: float, until_s: float) -> float | None:
        """CPU seconds in a time; None if a tenth of it or more was not sampled."""

        def within(end_s: float, length_s: float) -> float:
            return max(0.0, min(end_s, until_s) - max(end_s - length_s, from_s))

        if sum(within(*each) for each in self.sampled) <= SAMPLED * (until_s - from_s):
            return None
        parts = (cpu_s * within(end, of_s) / of_s for end, of_s, cpu_s in self.used if of_s)
        return sum(parts)


NO_CPU_TIME = CpuTime()


def planned(load: Shape, load_start_s: int, end_s: int) -> list[Disturbance]:
    """Scheduled bursts and rises of the load that end before `end_s`."""
    if load.recurring is None:
        return []
    kind, every_s, lasts_s = load.recurring
    result: list[Disturbance] = []
    at_s = load_start_s + every_s
    while at_s + lasts_s <= end_s:
        number = len(result) + 1
        until_s = int(at_s + lasts_s)
        result.append(Disturbance(kind, f"{kind} {number}", int(at_s), until_s))
        at_s += every_s
    return result


def recovery(
    disturbances: Sequence[Disturbance],
    medians_ms: Medians,
    outputs: Mapping[int, int],
    latencies: Latencies = NO_LATENCIES,
    *,
    cpu: CpuTime = NO_CPU_TIME,
    gaps_ms: Sequence[int] | None = None,
) -> list[Recovery]:
    """Recovery from each disturbance, for the report; times are seconds from it. gaps_ms: for each
    kill the longest time without output from it on that ends before the next, 0 without an output;
    None if the times of single outputs are unknown."""
    recoveries = []
    kills = [each for each in disturbances if each.kind == "kill"]
    for each in disturbances:
        bound_ms = _bound(each, disturbances, medians_ms)
        within = {s: ms for s, ms in medians_ms.items() if each.at_s <= s < each.until_s}
        if each.kind == "kill" and not _came_back(each, outputs):
            within = {}  # outputs in that second came before it
        high_for_s = _high_for_s(each, within, bound_ms)
        more: dict[str, Any] = {}
        if each.kind == "burst":
            after = (n for s, n in outputs.items() if each.at_s <= s < each.until_s)
            more["peak_per_second"] = max(after, default=0)
            more["p99_ms"] = _p99_ms(each, high_for_s, latencies)
        if each.kind == "kill":
            more["silent_s"] = _silent_s(each, outputs)
            if gaps_ms is not None:
                more["outage_s"] = _outage_s(each, outputs, gaps_ms[kills.index(each)])
            more["before_p99_ms"] = _before_p99_ms(kills[0], latencies)
            more["extra_core_s"] = _extra_core_s(each, kills[0], high_for_s, cpu)
        if each.kind == "start":
            begun = {s: n for s, n in outputs.items() if s >= each.at_s and n}
            first = min(begun, default=None)
            more["first_output_s"] = None if first is None else first - each.at_s
            more["peak_per_second"] = max(begun.values(), default=0)
        recoveries.append(
            Recovery(
                event=each.name,
                normal_ms=bound_ms and bound_ms / HIGH,
                highest_median_ms=max(within.values(), default=None),
                high_for_s=high_for_s,
                **more,
            )
        )
    return recoveries


def _bound(
    each: Disturbance, disturbances: Sequence[Disturbance], medians_ms: Medians
) -> float | None:
    """Latency above this is high: 1.5 times the median of the normal seconds; None if there are
    none."""
    alike = [other for other in disturbances if other.kind == each.kind]
    first_s = min(other.at_s for other in (disturbances if each.kind == "kill" else alike))
    before = [ms for s, ms in medians_ms.items() if s < first_s]
    if each.kind == "kill":
        return HIGH * median(before) if before else None
    ends = {s: ms for other in alike for s, ms in medians_ms.items() if _at_end(other, s)}
    if not ends or (each.kind == "start" and _is_behind(medians_ms, ends)):
        return None
    levels = [median(ends.values())]
    if each.kind != "start" and len(before) >= LEAST_BEFORE_S:
        levels.append(median(before))
    return HIGH * min(levels)


def _at_end(each: Disturbance, second: int) -> bool:
    """Whether a second is in the last third of a disturbance."""
    return each.until_s - (each.until_s - each.at_s) / 3 <= second < each.until_s


def _is_behind(medians_ms: Medians, ends: Medians) -> bool:
    """Whether a backlog at the start was not processed: at the end, latency is more than half of
    the highest, or it still falls or rises."""
    level, highest = median(ends.values()), max(medians_ms.values())
    if highest < BACKLOG_MS:
        return False
    ordered = [ms for _, ms in sorted(ends.items())]
    half = (len(ordered) + 1) // 2
    changed = abs(median(ordered[:half]) - median(ordered[-half:]))
    return level > highest / 2 or changed > max(CHANGE_MS, CHANGE_SHARE * level)


def _high_for_s(each: Disturbance, within: Medians, bound_ms: float | None) -> int | None:
    """Seconds until the end of the last high second; None if unknown or if latency was still high
    at the end."""
    if bound_ms is None or not within:
        return None
    high = [second for second, ms in within.items() if ms > bound_ms]
    if high and max(high) == max(within):
        return None
    return max(high) + 1 - each.at_s if high else 0


def _p99_ms(each: Disturbance, high_for_s: int | None, latencies: Latencies) -> int | None:
    """The 99th percentile of the outputs until latency is normal; None without any."""
    until_s = each.until_s if high_for_s is None else each.at_s + max(1, high_for_s)
    counts: Counter[int] = Counter()
    for second in range(each.at_s, until_s):
        counts.update(latencies.get(second, {}))
    return quantile(counts, 0.99)


def _before_p99_ms(first: Disturbance, latencies: Latencies) -> int | None:
    counts: Counter[int] = Counter()
    for second in range(first.since_s, first.at_s):
        counts.update(latencies.get(second, {}))
    return quantile(counts, 0.99)


def _extra_core_s(
    each: Disturbance, first: Disturbance, high_for_s: int | None, cpu: CpuTime
) -> float | None:
    """None if latency did not become normal, or a time was not sampled."""
    before_s = first.at_s - first.since_s
    if high_for_s is None or before_s <= 0:
        return None
    before = cpu.seconds(first.since_s, first.at_s)
    after = cpu.seconds(each.at_s, each.at_s + high_for_s) if high_for_s else 0.0
    return None if before is None or after is None else after - before / before_s * high_for_s


def _outage_s(each: Disturbance, outputs: Mapping[int, int], gap_ms: int) -> float | None:
    """None if it had not ended before the next kill or the end."""
    has_ended = _came_back(each, outputs) and gap_ms > 1000 * (_silent_s(each, outputs) - 1)
    return gap_ms / 1000 if has_ended else None


def _came_back(each: Disturbance, outputs: Mapping[int, int]) -> bool:
    return any(n for s, n in outputs.items() if each.at_s < s < each.until_s)


def _silent_s(each: Disturbance, outputs: Mapping[int, int]) -> int:
    """The longest time without output from the kill on, in whole seconds; the time after the last
    output is excluded as the end of the load, unless there was no further output."""
    last = max((s for s, n in outputs.items() if n), default=each.at_s)
    if not _came_back(each, outputs):
        last = each.until_s - 1
    longest = current = 0
    for second in range(each.at_s, min(last, each.until_s - 1) + 1):
        current = 0 if outputs.get(second) else current + 1
        longest = max(longest, current)
    return longest


def sentence(stage: str, recovered: Recovery) -> str:
    """One recovery as a sentence."""
    high, highest = recovered.high_for_s, recovered.highest_median_ms
    text = f"{stage}, {recovered.event}: "
    if "first_output_s" in recovered.model_fields_set:
        caught_up = "not caught up in this run" if high is None else f"caught up after {high} s"
        first = recovered.first_output_s
        begun = "no output" if first is None else f"first output after {first} s"
        return text + f"{begun}, {caught_up}, peak {recovered.peak_per_second} outputs/s."
    if recovered.silent_s is not None:
        text += f"silent for {recovered.silent_s} s; "
    if highest is None:
        return text + "no outputs after it."
    text += f"median up to {highest:.0f} ms, "
    if recovered.p99_ms is not None:
        text += f"p99 {recovered.p99_ms} ms, peak {recovered.peak_per_second} outputs/s, "
    return text + (
        "not normal again in this run." if high is None else f"normal again after {high} s."
    )
