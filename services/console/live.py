"""Shows the progress of a run: a redrawn table on a terminal, otherwise a line every few seconds;
nothing with --quiet."""

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.console.progress import PHASE_WORDS, SHOWN_S, Progress
from services.console.terminal import heights, is_quiet, redraws
from services.runtime.clock import now_ms

PLAIN_EVERY_S = 5.0
WIDE = 100  # minimum columns for the bars
STEADY_PHASES = ("search", "warm_up", "measure")
STEADY_WORDS = {None: "", False: "steady", True: "moves"}


class View(Protocol):
    """Shows progress while its context is active."""

    def __enter__(self) -> "View": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: Progress) -> None:
        """Show the current state. Called several times a second; must not block."""


def open_view(console: Console) -> View:
    """The view that suits the output."""
    if is_quiet(console):
        return NoView()
    return LiveView(console) if redraws(console) else PlainView(console)


def headline(progress: Progress, time_ms: int) -> str:
    """Phase, time left and input rate in one line."""
    words = PHASE_WORDS[progress.phase]
    if progress.phase == "search":
        words = f"{words}: {progress.searching}"
    if progress.phase == "warm_up":
        words = warming(progress)
    left = progress.seconds_left(time_ms)
    parts = [words if left is None else f"{words}, {left:.0f} s left"]
    if progress.phase == "prepare" and progress.ready:
        parts.append(f"ready: {', '.join(progress.ready)}")
    if progress.input_records:
        parts.append(f"input {progress.input_rate():.0f} records/s")
    is_told = progress.phase == "warm_up" and progress.still
    if progress.steady is not None and progress.phase in STEADY_PHASES and not is_told:
        parts.append("steady" if progress.steady else "not steady yet")
    return " · ".join(parts)


def warming(progress: Progress) -> str:
    """The warm-up and what is not steady: `warming up: p50 of join still falls, 14 → 9 ms`."""
    until = " until all stages are steady" if progress.request.workload.phases.until_steady else ""
    if not progress.still:
        return PHASE_WORDS["warm_up"] + until
    more = f" (and {len(progress.still) - 1} more)" if len(progress.still) > 1 else ""
    return f"warming up{until}: {progress.still[0]}{more}"


def live_table(progress: Progress, console: Console) -> Table:
    """A row per pipeline and stage."""
    table = Table(box=None, pad_edge=False)
    is_wide = console.width >= WIDE
    for column in ("pipeline", "stage"):
        table.add_column(column)
    for column in ("p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    if is_wide:
        table.add_column(f"p99, last {SHOWN_S} s", width=SHOWN_S, no_wrap=True)
    table.add_column("")
    for column in ("exact", "other verdicts"):
        table.add_column(column, justify="right")
    for pipeline, stage, p50, p99, exact, others in progress.rows():
        cells = [pipeline, stage, _or_dash(p50), _or_dash(p99)]
        if is_wide:
            values = progress.recent_p99s(pipeline, stage)
            cells.append(heights(values, SHOWN_S, console.encoding))
        cells += [STEADY_WORDS[progress.moves(pipeline, stage)], str(exact), str(others)]
        table.add_row(*cells, style="red" if others else "")
    return table


class NoView:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, progress: Progress) -> None:
        """Do nothing."""


class LiveView:
    """A redrawn table."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._told = 0

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the current state; the lines of a search and of starts stay above it."""
        for line in progress.search[self._told :]:
            self._live.console.print(line, soft_wrap=True)
        self._told = len(progress.search)
        table = live_table(progress, self._live.console)
        note = Text("latency: latest input to output, last 5 s", style="dim")
        self._live.update(Group(Text(headline(progress, now_ms()), style="bold"), table, note))


class PlainView(NoView):
    """One line at every change of phase and every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase: str | None = None
        self._shown_s = 0.0
        self._told = 0

    def show(self, progress: Progress) -> None:
        """Print a line if there is something new."""
        for line in progress.search[self._told :]:
            self._console.print(line, soft_wrap=True)
        self._told = len(progress.search)
        due = time.monotonic() - self._shown_s >= PLAIN_EVERY_S
        if progress.phase == self._phase and not (due and progress.phase):
            return
        self._phase, self._shown_s = progress.phase, time.monotonic()
        figures = [
            f"{stage} {p50}/{p99}"
            if len(progress.request.pipelines) == 1
            else f"{pipeline} {stage} {p50}/{p99}"
            for pipeline, stage, p50, p99, _exact, _others in progress.rows()
            if p50 is not None
        ]
        latencies = f" · p50/p99 ms: {', '.join(figures)}" if figures else ""
        others = sum(row[5] for row in progress.rows())
        trouble = f" · {others} outputs not exact" if others else ""
        line = headline(progress, now_ms()) + latencies + trouble
        self._console.print(line, soft_wrap=True)


def _or_dash(value: int | None) -> str:
    return "–" if value is None else str(value)
