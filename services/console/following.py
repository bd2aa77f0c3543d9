"""Follows a watch from its start to its end, for the verb `watch`."""

import math
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Console

from schemas.watch import Watch
from services.console.terminal import harmless, is_quiet, say_unless_quiet
from services.definitions.watches import end_watch, keep_watch, kept_watches, position_path
from services.readmodel import runs
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings

LOOK_S = 0.25
TELL_S = 10
SHOWN_S = 10  # what the figures of a line cover
BEGIN_S = 80.0  # the last try to begin is after 69 s (services/watcher/processes.py)
END_S = 60.0  # a process has 8 s to stop; the next one catches up for 30 s and concludes
PROJECTED_S = 10.0


@dataclass(frozen=True)
class Following:
    """A watch that a command started or continues. page: address of its dashboard. check: raises if
    the stack has stopped. since_ms: earlier problems are not told."""

    watch: Watch
    settings: ServiceSettings
    console: Console
    page: str
    check: Callable[[], None]
    since_ms: int = field(default_factory=now_ms)

    @property
    def is_kept(self) -> bool:
        """Whether the stack has a watch of this name."""
        return self.watch.name in kept_watches(self.settings.data)

    def begin(self, what: str) -> None:
        """Start or update the watch, and print what it reads. what: such as `runs for 60 s`; empty
        for `starts` or `continues`."""
        is_new = keep_watch(self.settings.data, self.watch)
        inputs = ", ".join(one.topic for one in self.watch.inputs)
        outputs = ", ".join(one.topic for one in self.watch.outputs)
        what = what or ("starts" if is_new else "continues")
        say_unless_quiet(self.console, f"The watch {self.watch.name} {what}: {inputs} → {outputs}")
        say_unless_quiet(self.console, f"Watch it at {self.page}")

    def follow(self, most_s: float = math.inf, reason: str = "") -> None:
        """Print a line with the latest figures every TELL_S, for so many seconds, and each new
        problem. reason: the last problem that was told. If only results are printed, the figures
        of a limited time are left out: its report has them."""
        begin_s = told_s = time.monotonic()
        while time.monotonic() - begin_s < most_s:
            self.check()
            if time.monotonic() - told_s >= TELL_S:
                told_s, before = time.monotonic(), reason
                reason = self.trouble() or before
                if reason != before:
                    self.console.print(f"Problem: {harmless(reason)}", soft_wrap=True)
                if most_s == math.inf or not is_quiet(self.console):
                    self.console.print(self._figures(), soft_wrap=True)
            time.sleep(LOOK_S)

    def end(self, known: Set[str] = frozenset()) -> None:
        """End the watch and wait until its runs are concluded and projected by the store. known:
        earlier runs of this name, which are not waited for."""
        if self.is_kept:
            end_watch(self.settings.data, self.watch.name)
        position = position_path(self.settings.data, self.watch.name)
        self.wait(lambda: not position.exists(), END_S)
        self.wait(lambda: not self._open_runs(known), PROJECTED_S)

    def wait(self, done: Callable[[], bool], most_s: float) -> bool:
        """Wait until something is done, or for so many seconds; returns whether it is."""
        end_s = time.monotonic() + most_s
        while not (is_done := done()) and time.monotonic() < end_s:
            self.check()
            time.sleep(LOOK_S)
        return is_done

    def runs(self) -> dict[str, bool]:
        """The runs of this name, and whether each is concluded. Raises QueryError."""
        return runs.runs_of_watch(store_url(self.settings), self.watch.name)

    def new_runs(self, known: Set[str]) -> set[str]:
        """The runs of this watch that are not known. An earlier watch of this name may still be
        ending: the date of its run differs. Empty while the store does not answer."""
        begin_s = int(time.time()) // self.watch.run_s * self.watch.run_s
        begin = datetime.fromtimestamp(begin_s, UTC)
        own = f"watch-{self.watch.name}-{begin:%Y%m%d-%H%M%S}"
        try:
            return {run for run in self.runs() if run.startswith(own)} - known
        except QueryError:
            return set()

    def trouble(self) -> str:
        """The latest problem of this watch; empty without one."""
        url = store_url(self.settings)
        try:
            trouble = runs.last_trouble(url, self.watch.name, self.since_ms)
        except QueryError:
            return ""
        return ": ".join(filter(None, (trouble.topic, trouble.reason))) if trouble else ""

    def _open_runs(self, known: Set[str]) -> bool:
        try:
            return any(not done for run, done in self.runs().items() if run not in known)
        except QueryError:
            return True

    def _figures(self) -> str:
        """The last ten seconds in one line."""
        url, name = store_url(self.settings), self.watch.name
        try:
            recent = runs.recent_outputs(url, name, SHOWN_S)
            faults = runs.recent_faults(url, name, SHOWN_S)
        except QueryError as error:
            return f"The store does not answer: {error}"
        wrong = ", ".join(f"{count} {verdict}" for verdict, count in faults.items() if count)
        if recent is None:
            return f"no output was paired in the last {SHOWN_S} s{'; ' if wrong else ''}{wrong}"
        latency = f"p50 {recent.p50_ms}, p99 {recent.p99_ms}, max {recent.max_ms} ms"
        return f"{recent.outputs / SHOWN_S:.1f} pairs/s, {latency}; {wrong or 'no errors'}"
