"""Resource use of each service between two samples of its processes. Pure.

Processor time of a process only grows, so its use in an interval is the difference of two samples,
with three exceptions:

- A new process born after the collector started counts from zero. For an older one, the first
  sample is the baseline.
- A process that ended used more after its last sample. The operating system adds its total to its
  parent's "children" time when the parent waits for it. The part already counted is the parent's
  debt, and only the rest counts. So nothing is counted twice, and neither the last moments of a
  process nor processes too short for any sample are lost. Another process may have waited for it,
  so unpaid debts expire.
- Differences are never negative.

Any measure other than processor, memory, processes and threads may be None: it cannot be read, or
does not exist for this process. Sums skip None, and are None if all values are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

MeasuresT = TypeVar("MeasuresT", "Counters", "Gauges")
# Beyond the interval in which a process has gone: its parent may have been sampled before that.
DEBT_INTERVALS = 2
Identity = tuple[int, float]
"""Process id and creation time (epoch seconds): ids are reused, the pair is not."""


@dataclass(frozen=True)
class Counters:
    """Monotonic counters of a process, or of the machine since boot. Disk and network in bytes;
    times in seconds; gc_count: finished collections; jit_seconds: compiler time. Names are those of
    the events."""

    read_bytes: int | None = None
    written_bytes: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    gc_seconds: float | None = None
    gc_count: int | None = None
    jit_seconds: float | None = None
    steal_seconds: float | None = None
    cpu_pressure_seconds: float | None = None
    io_pressure_seconds: float | None = None
    memory_pressure_seconds: float | None = None
    run_queue_wait_seconds: float | None = None


@dataclass(frozen=True)
class Gauges:
    """Current values. heap_*: of a JVM. load_1m and frequency_mhz: of the machine."""

    open_files: int | None = None
    heap_used_bytes: int | None = None
    heap_capacity_bytes: int | None = None
    heap_max_bytes: int | None = None
    load_1m: float | None = None
    frequency_mhz: float | None = None


NO_COUNTERS, NO_GAUGES = Counters(), Gauges()


def total(measures: Iterable[MeasuresT], kind: type[MeasuresT]) -> MeasuresT:
    """The sum of each measure."""
    return _each(list(measures), kind, sum)


def growth(now: Counters, before: Counters) -> Counters:
    """Increase of each counter; never negative."""

    def grown(values: list[Any]) -> Any:
        return max(0, values[0] - values[1]) if len(values) == 2 else None

    return _each([now, before], Counters, grown)


def _each(
    measures: list[MeasuresT], kind: type[MeasuresT], combine: Callable[[list[Any]], Any]
) -> MeasuresT:
    combined = {}
    for measure in fields(kind):
        known = [v for m in measures if (v := getattr(m, measure.name)) is not None]
        combined[measure.name] = combine(known) if known else None
    return kind(**combined)


@dataclass(frozen=True)
class Owner:
    """The service or pipeline that a process belongs to."""

    service: str
    pipeline: str = ""


@dataclass(frozen=True)
class ProcessSample:
    """One process at one moment. cpu_s: its user and system time since its birth;
    ended_children_cpu_s: that of ended children that it waited for. name: of its program, of a
    process of a pipeline."""

    identity: Identity
    parent: Identity | None
    owner: Owner
    cpu_s: float
    ended_children_cpu_s: float
    memory_bytes: int
    threads: int
    counters: Counters = NO_COUNTERS
    gauges: Gauges = NO_GAUGES
    name: str = ""


@dataclass(frozen=True)
class OwnerUsage:
    """What an owner used in an interval, and its gauges at the end. *_by_process: of processes with
    a name; processor time, whose sum over a pipeline is `cpu_s`, and bytes over TCP connections."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0
    threads: int = 0
    counters: Counters = NO_COUNTERS
    gauges: Gauges = NO_GAUGES
    cpu_s_by_process: Mapping[str, float] = field(default_factory=dict)
    received_by_process: Mapping[str, float] = field(default_factory=dict)
    sent_by_process: Mapping[str, float] = field(default_factory=dict)


def _with(amounts: Mapping[str, float], name: str, amount: float | None) -> Mapping[str, float]:
    """The amounts with that of one more process; it does not count without a name."""
    if not name or amount is None:
        return amounts
    return {**amounts, name: amounts.get(name, 0) + amount}


class Accountant:
    """Keeps the last sample of each process. began_s: when the collector began, epoch seconds."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._last: dict[Identity, ProcessSample] = {}
        self._debts_s: dict[Identity, list[float]] = {}  # by age in intervals, newest first

    def account(self, samples: Iterable[ProcessSample]) -> dict[Owner, OwnerUsage]:
        """Usage since the last call, of every owner with a running process."""
        now = {sample.identity: sample for sample in samples}
        self._inherit_debts(now)
        usage: dict[Owner, OwnerUsage] = {}
        for sample in now.values():
            so_far, used_s = usage.get(sample.owner, OwnerUsage()), self._used_s(sample)
            counted = self._counted(sample)
            usage[sample.owner] = OwnerUsage(
                so_far.cpu_s + used_s,
                so_far.memory_bytes + sample.memory_bytes,
                so_far.processes + 1,
                so_far.threads + sample.threads,
                total((so_far.counters, counted), Counters),
                total((so_far.gauges, sample.gauges), Gauges),
                _with(so_far.cpu_s_by_process, sample.name, used_s),
                _with(so_far.received_by_process, sample.name, counted.received_bytes),
                _with(so_far.sent_by_process, sample.name, counted.sent_bytes),
            )
        self._last = now
        return usage

    def _counted(self, sample: ProcessSample) -> Counters:
        """Growth of the counters since the last sample of the process."""
        before = self._last.get(sample.identity)
        if before is not None:
            return growth(sample.counters, before.counters)
        return sample.counters if sample.identity[1] >= self._began_s else NO_COUNTERS

    def _used_s(self, sample: ProcessSample) -> float:
        before = self._last.get(sample.identity)
        if before is not None:
            own_s = max(0.0, sample.cpu_s - before.cpu_s)
            ended_s = max(0.0, sample.ended_children_cpu_s - before.ended_children_cpu_s)
        elif sample.identity[1] >= self._began_s:
            own_s, ended_s = sample.cpu_s, sample.ended_children_cpu_s
        else:
            return 0.0
        return own_s + self._unpaid_s(self._debts_s.get(sample.identity, []), ended_s)

    @staticmethod
    def _unpaid_s(debts_s: list[float], ended_s: float) -> float:
        """Time of ended children left after paying debts, oldest first."""
        for age in reversed(range(len(debts_s))):
            paid_s = min(debts_s[age], ended_s)
            debts_s[age] -= paid_s
            ended_s -= paid_s
        return ended_s

    def _inherit_debts(self, now: dict[Identity, ProcessSample]) -> None:
        """Turn the counted time of ended processes into debt of the nearest ancestor; drop expired
        debts."""
        self._debts_s = {
            heir: [0.0, *debts_s[:DEBT_INTERVALS]]
            for heir, debts_s in self._debts_s.items()
            if any(debts_s[:DEBT_INTERVALS])
        }
        for identity in self._last.keys() - now.keys():
            gone = self._last[identity]
            debt_s = sum(self._debts_s.pop(identity, ())) + gone.cpu_s + gone.ended_children_cpu_s
            heir = gone.parent
            while heir is not None and heir not in now:
                heir = self._last[heir].parent if heir in self._last else None
            if heir is not None:
                self._debts_s.setdefault(heir, [0.0])[0] += debt_s
