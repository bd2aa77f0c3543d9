"""From samples of processes to what each service used between them. Pure.

Processor time of a process only grows, so its use in an interval is the difference of two samples.
Three things make it more than that:

- A process that is new was either born under our eyes, then all it used counts, or it is older
  than the collector, then its first sample is its mark.
- A process that ended used more after its last sample. The operating system adds what it used in
  all to its parent's "children" time when the parent waits for it; what of that was counted already
  is the parent's debt, and only the rest counts. So nothing is counted twice and the last moments
  of a process, and whole processes too short for any sample, are not lost. Somebody else may have
  waited for it, so a debt that stays unpaid is forgotten.
- No difference is ever negative.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.collector.measures import NO_COUNTERS, NO_GAUGES, Counters, Gauges, growth, total

# After the one in which a process is found gone: its parent may have been sampled before that.
DEBT_INTERVALS = 2

Identity = tuple[int, float]
"""Process id and creation time (epoch seconds): ids are used again, the pair is not."""


@dataclass(frozen=True)
class Owner:
    """Whom a process works for."""

    service: str
    pipeline: str = ""


@dataclass(frozen=True)
class ProcessSample:
    """One process at one moment. cpu_s: its own processor time, user and system, since its birth;
    ended_children_cpu_s: that of its children that ended and that it waited for."""

    identity: Identity
    parent: Identity | None
    owner: Owner
    cpu_s: float
    ended_children_cpu_s: float
    memory_bytes: int
    threads: int
    counters: Counters = NO_COUNTERS
    gauges: Gauges = NO_GAUGES


@dataclass(frozen=True)
class Usage:
    """What an owner used in an interval, and has at its end."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0
    threads: int = 0
    counters: Counters = NO_COUNTERS
    gauges: Gauges = NO_GAUGES


class Accountant:
    """Keeps the last sample of each process. began_s: since when it watches, epoch seconds."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._last: dict[Identity, ProcessSample] = {}
        self._debts_s: dict[Identity, list[float]] = {}  # by age in intervals, the newest first

    def account(self, samples: Iterable[ProcessSample]) -> dict[Owner, Usage]:
        """Usage since the last call, of every owner that has a process now."""
        now = {sample.identity: sample for sample in samples}
        self._inherit_debts(now)
        usage: dict[Owner, Usage] = {}
        for sample in now.values():
            so_far = usage.get(sample.owner, Usage())
            usage[sample.owner] = Usage(
                so_far.cpu_s + self._used_s(sample),
                so_far.memory_bytes + sample.memory_bytes,
                so_far.processes + 1,
                so_far.threads + sample.threads,
                total((so_far.counters, self._counted(sample)), Counters),
                total((so_far.gauges, sample.gauges), Gauges),
            )
        self._last = now
        return usage

    def _counted(self, sample: ProcessSample) -> Counters:
        """Growth of the counters; what a process counted after its last sample is not known."""
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
        """What is left of the time of ended children when it has paid debts, the oldest first."""
        for age in reversed(range(len(debts_s))):
            paid_s = min(debts_s[age], ended_s)
            debts_s[age] -= paid_s
            ended_s -= paid_s
        return ended_s

    def _inherit_debts(self, now: dict[Identity, ProcessSample]) -> None:
        """What was counted of processes that are gone becomes debt of the nearest ancestor; debts
        that are too old go."""
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
