"""The watches that run: each for as long as its file exists, and those that conclude a removed one
that did not end by itself, in processes that seats.py chooses; and their figures as Prometheus
metrics."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.events import WatchTrouble
from services.definitions.watches import kept_watches, positions
from services.runtime.events import Events
from services.runtime.figure_metrics import FigureCounts, Labels, families
from services.runtime.logs import get_log
from services.watcher.seats import MOST_READ, MOST_REASON_BYTES, SHOWN, Seats, WatchProcess

LEAST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
LASTING_S: Final = 120.0  # a process that ran this long started well
STOP_TIMEOUT_S: Final = 8.0
GROUP: Final = ("watch", "group", "topic")
PROCESS: Final = ("process",)
BUSY_CORES: Final = 0.2  # of a watch that needs a process of its own
BUSY_LOOKS: Final = 3  # in a row
log = get_log()


@dataclass
class _Child:
    """A process of a watch. version: of its file. pause_s: delay before a restart. is_concluding:
    whether it only concludes a watch without a file. rest: what it wrote after the last whole
    line. cpu_s: processor time of its thread when it was last shown, at shown_s. busy: how often in
    a row it took much. is_moving: whether it is stopped to get a process of its own."""

    process: WatchProcess
    version: int
    began_s: float
    pause_s: float = LEAST_PAUSE_S
    again_s: float | None = None
    is_concluding: bool = False
    rest: bytes = b""
    cpu_s: float = 0.0
    shown_s: float = 0.0
    busy: int = 0
    is_moving: bool = False

    def note_cpu(self, cpu_s: float, now_s: float) -> None:
        """Note the processor time of its thread."""
        if self.shown_s:
            is_busy = cpu_s - self.cpu_s > BUSY_CORES * (now_s - self.shown_s)
            self.busy = self.busy + 1 if is_busy else 0
        self.cpu_s, self.shown_s = cpu_s, now_s

    def figures(self) -> dict[str, Any] | None:
        """The latest figures that it has written since the last call."""
        assert self.process.stdout is not None
        *lines, self.rest = (self.rest + (self.process.stdout.read(MOST_READ) or b"")).split(b"\n")
        shown = [line for line in lines if line.startswith(SHOWN)]
        result: dict[str, Any] | None = json.loads(shown[-1][len(SHOWN) :]) if shown else None
        return result


class WatchMetrics(Collector):
    """The latest figures of each watch, and whether it runs. Set and read by different threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shown: dict[str, dict[str, Any]] = {}
        self._is_up: dict[str, bool] = {}

    def set(self, name: str, shown: dict[str, Any]) -> None:
        """Replace the figures of a watch, which runs."""
        with self._lock:
            self._shown[name], self._is_up[name] = shown, True

    def stop(self, name: str) -> None:
        """Note that a watch does not run. Its figures stay."""
        with self._lock:
            self._is_up[name] = False

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other watches."""
        with self._lock:
            self._shown = {name: self._shown[name] for name in names if name in self._shown}
            self._is_up = {name: self._is_up[name] for name in names if name in self._is_up}

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        with self._lock:
            shown, is_up = dict(self._shown), dict(self._is_up)
        counts: dict[Labels, FigureCounts] = {
            (name,): FigureCounts.restored(each["figures"]) for name, each in shown.items()
        }
        yield from families(counts, ("watch",))
        lag = GaugeMetricFamily(
            "tidegauge_watch_lag_seconds", "Age of what is judged next", labels=["watch"]
        )
        valid = GaugeMetricFamily(
            "tidegauge_watch_valid", "Whether its current run is valid so far", labels=["watch"]
        )
        group = GaugeMetricFamily(
            "tidegauge_group_lag_records",
            "Records between what a consumer group has committed and the end of a topic",
            labels=GROUP,
        )
        behind = GaugeMetricFamily(
            "tidegauge_group_lag_seconds",
            "Age of the oldest record of a topic that a consumer group reads next; 0 without one",
            labels=GROUP,
        )
        catch_up = GaugeMetricFamily(
            "tidegauge_group_catch_up_seconds",
            "Time until a consumer group has read a topic, at the rates of the last minute; none "
            "if it does not catch up",
            labels=GROUP,
        )
        up = GaugeMetricFamily(
            "tidegauge_watch_up", "Whether it runs and could read its topics", labels=["watch"]
        )
        for name, runs in is_up.items():
            up.add_metric([name], runs)
        for name, each in shown.items():
            if each["lag_ms"] is not None:
                lag.add_metric([name], each["lag_ms"] / 1000)
            valid.add_metric([name], each["is_valid"])
            for group_id, topic, *values in each["lags"]:
                for family, value in zip((group, behind, catch_up), values, strict=True):
                    if value is not None:
                        family.add_metric([name, group_id, topic], value)
        yield from (up, lag, valid, group, behind, catch_up)
        yield from _of_processes(shown.values())

    def describe(self) -> list[Metric]:
        """None: their labels are those of the watches."""
        return []


def _of_processes(shown: Iterable[dict[str, Any]]) -> Iterator[Metric]:
    """What the processes of watches take, by name: that of the watch, or of the shared process."""
    processes = [each["process"] for each in shown]
    watches = Counter(each["name"] for each in processes)
    latest = {each["name"]: each for each in sorted(processes, key=itemgetter("cpu_s"))}
    count = GaugeMetricFamily(
        "tidegauge_watch_process_watches", "Watches of a process", labels=PROCESS
    )
    memory = GaugeMetricFamily(
        "tidegauge_watch_process_memory_bytes", "Resident memory of a process", labels=PROCESS
    )
    cpu = CounterMetricFamily(
        "tidegauge_watch_process_cpu_seconds", "Processor time of a process", labels=PROCESS
    )
    for name, each in sorted(latest.items()):
        count.add_metric([name], watches[name])
        memory.add_metric([name], each["memory_bytes"])
        cpu.add_metric([name], each["cpu_s"])
    yield from (count, memory, cpu)


def _reason(process: WatchProcess, begun: bytes = b"") -> str:
    """What an ended process gave as the reason; empty if it was killed. begun: what was read of
    it."""
    assert process.stdout is not None
    with process.stdout as output:
        lines = (begun + (output.read(MOST_READ) or b"")).split(b"\n")
    reason = b"\n".join(line for line in lines if not line.startswith(SHOWN))
    return reason[:MOST_REASON_BYTES].decode(errors="replace").strip()


class WatchProcesses:
    """Starts, restarts and ends the watches of a data folder. metrics: the figures that they have
    shown."""

    def __init__(
        self,
        data: Path,
        events: Events,
        seats: Seats | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data = data
        self._events = events
        self._seats = seats or Seats()
        self._clock_s = clock_s
        self._children: dict[str, _Child] = {}
        self._ending: dict[str, _Child] = {}
        self.metrics = WatchMetrics()

    def tick(self) -> None:
        """Start and stop processes so that exactly the wanted watches have one; read figures."""
        self._seats.look()
        wanted = kept_watches(self._data)
        others = [name for name, each in self._children.items() if wanted.get(name) != each.version]
        self._end([self._children.pop(name).process for name in others])
        for name in positions(self._data) - wanted.keys() - self._ending.keys():
            if not self._seats.is_leaving(name):
                process = self._seats.start(name, True)
                self._ending[name] = _Child(process, 0, self._clock_s(), is_concluding=True)
        for name, child in self._ending.items():
            if name not in wanted and child.process.poll():  # it could not conclude
                self._revive(name, child)
        at_it = {name for name, child in self._ending.items() if child.process.poll() is None}
        for name, version in wanted.items():
            known = self._children.get(name)
            if name in at_it or (known is None and self._seats.is_leaving(name)):
                continue
            self._ending.pop(name, None)
            if known is None:
                process = self._seats.start(name, False)
                self._children[name] = _Child(process, version, self._clock_s())
            else:
                self._revive(name, known)
        self._look()

    def close(self) -> None:
        """Stop all of them; they resume when the watcher starts again."""
        children = (*self._children.values(), *self._ending.values())
        self._end([child.process for child in children])
        self._seats.close()

    def _look(self) -> None:
        """Read the figures of the processes. Those of one that has ended stay until the next has
        some."""
        self.metrics.keep(self._children)
        for name, child in self._children.items():
            if child.again_s is None and child.process.poll() is None and (of := child.figures()):
                self.metrics.set(name, of)
                child.note_cpu(of["process"]["thread_s"], self._clock_s())
                if self._is_to_move(name, child, of["process"]["name"]):
                    log.info("watch_moves", watch=name)
                    child.is_moving = True
                    child.process.terminate()

    def _is_to_move(self, name: str, child: _Child, process: str) -> bool:
        """Whether a watch takes so much in a shared process that it gets one of its own."""
        is_shared = process != name and not child.is_moving
        return is_shared and child.busy >= BUSY_LOOKS and self._seats.give_own(name)

    def _revive(self, name: str, child: _Child) -> None:
        now_s = self._clock_s()
        if child.is_moving and child.process.poll() == 0:
            child.is_moving, child.again_s = False, now_s
        if child.again_s is None and child.process.poll() is not None:
            lasted = now_s - child.began_s > LASTING_S
            child.pause_s = LEAST_PAUSE_S if lasted else min(2 * child.pause_s, MOST_PAUSE_S)
            child.again_s = now_s + child.pause_s
            event = WatchTrouble(
                kind="ended",
                watch=name,
                code=child.process.returncode,
                again_in_s=child.pause_s,
                reason=_reason(child.process, child.rest),
            )
            log.warning("watch_ended", **event.detail)
            self._events.publish(event)
            if not child.is_concluding:
                self.metrics.stop(name)
        elif child.again_s is not None and now_s >= child.again_s:
            child.process = self._seats.start(name, child.is_concluding)
            child.began_s, child.again_s, child.rest = now_s, None, b""
            child.shown_s, child.busy = 0.0, 0

    @staticmethod
    def _end(processes: list[WatchProcess]) -> None:
        for process in processes:
            process.terminate()
        end_s = time.monotonic() + STOP_TIMEOUT_S
        for process in processes:
            try:
                process.wait(max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
