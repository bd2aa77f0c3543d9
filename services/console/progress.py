"""Progress of a run, from events on the bus (pure), and the views that show it: a redrawn table on
a terminal, otherwise a line every few seconds; nothing with --quiet.

    progress = Progress(request)
    progress.add(event)
    progress.rows()
"""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from schemas import catalogue, protocol
from schemas.events import (
    BusEvent,
    Concluded,
    Failed,
    FigureColumns,
    PhaseStarted,
    PipelineReady,
    RateJudged,
    Ready,
    RunRefused,
    SearchStepJudged,
    SearchStepStarted,
    StartAgain,
    SteadinessObserved,
)
from schemas.percentiles import quantile
from schemas.protocol import RunRequest
from schemas.report import SearchResult
from services.console.report.words import search_sentence
from services.console.terminal import heights, is_quiet, redraws
from services.runtime.process import now_ms

BUS = (
    catalogue.LIFECYCLE,
    catalogue.LATENCY,
    catalogue.VERDICTS,
    catalogue.THROUGHPUT,
    catalogue.CONCLUSIONS,
)
RECENT_S = 5
SHOWN_S = 30  # length of a row of bars

PHASE_WORDS = {
    "": "waiting for the conductor",
    "search": "searching the sustainable rate",
    "prepare": "preparing: topics, queries, first outputs",
    "warm_up": "warm-up",
    "measure": "measuring",
    "cool_down": "cool-down",
    "drain": "draining: waiting for the last expected outputs",
    "conclude": "concluding",
}
PLAIN_EVERY_S = 5.0
WIDE = 100  # minimum columns for the bars
STEADY_PHASES = ("search", "warm_up", "measure")
STEADY_WORDS = {None: "", False: "steady", True: "moves"}


@dataclass
class RunProgress:
    """State of one run. done: concluded or refused; refused: the reason; going_on: the run that
    caused the refusal; failures: one sentence each; interrupted: by the user; search: a line for
    each step of a search for the sustainable rate, and for each pipeline that is started again;
    steady, moving, still: the conductor's latest steadiness report; measured: the run whose figures
    are shown, a step during a search."""

    request: RunRequest
    phase: str = ""
    phase_end_ms: int | None = None
    ready: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    done: bool = False
    refused: str = ""
    going_on: str = ""
    interrupted: bool = False
    valid: bool = False
    clean: bool = False
    latencies: dict[tuple[str, str, int], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    verdicts: dict[tuple[str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    input_records: Counter[int] = field(default_factory=Counter)
    search: list[str] = field(default_factory=list)
    searching: str = ""
    steady: bool | None = None
    moving: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    measured: str = ""

    def __post_init__(self) -> None:
        self.measured = self.request.run_id

    def add(self, event: BusEvent) -> None:
        """Process one event of a topic of BUS; events of other runs are ignored, except for the
        figures of the current step of a search."""
        if event.run_id == self.measured:
            match event:
                case FigureColumns(topic, fields):
                    self._add_figures(topic, fields)
                case SteadinessObserved():
                    self.steady, self.moving, self.still = event.steady, event.moving, event.still
        if event.run_id == self.request.run_id:
            self._add_event(event)

    def _add_figures(self, topic: str, record: dict[str, Any]) -> None:
        if topic == catalogue.LATENCY and record["definition"] == "latest":
            counts = self.latencies[record["pipeline"], record["stage"], record["second"]]
            counts.update(dict(zip(record["latencies_ms"], record["counts"], strict=True)))
        elif topic == catalogue.VERDICTS:
            total = self.verdicts[record["pipeline"], record["stage"]]
            total.update({verdict: record[verdict] for verdict in protocol.VERDICTS})
        elif topic == catalogue.THROUGHPUT and not record["pipeline"]:
            self.input_records[record["second"]] += record["records"]

    def _measure(self, run_id: str) -> None:
        """Show the figures of this run from now on."""
        if run_id != self.measured:
            self.measured = run_id
            self.latencies.clear()
            self.verdicts.clear()
            self.input_records.clear()
            self.steady, self.moving, self.still = None, (), ()

    def input_rate(self) -> float:
        """Input records per second over the latest complete seconds."""
        seconds = sorted(self.input_records)[:-1][-RECENT_S:]
        return sum(self.input_records[second] for second in seconds) / max(1, len(seconds))

    def recent_latency(self, pipeline: str, stage: str) -> Counter[int]:
        """Counts of `latest` by milliseconds, over the last seconds with outputs."""
        seconds = sorted(s for p, g, s in self.latencies if (p, g) == (pipeline, stage))
        total: Counter[int] = Counter()
        for second in seconds[-RECENT_S:]:
            total.update(self.latencies[pipeline, stage, second])
        return total

    def recent_p99s(self, pipeline: str, stage: str) -> list[int]:
        """99th percentiles of `latest` of the last seconds with outputs, oldest first."""
        seconds = sorted(s for p, g, s in self.latencies if (p, g) == (pipeline, stage))
        result = (quantile(self.latencies[pipeline, stage, s], 0.99) for s in seconds[-SHOWN_S:])
        return [value for value in result if value is not None]

    def moves(self, pipeline: str, stage: str) -> bool | None:
        """Whether a stage is not steady yet; None if not known."""
        if self.steady is None:
            return None
        places = (f"{pipeline} {stage}:", f"{pipeline}:")
        return any(sentence.startswith(places) for sentence in self.moving)

    def seconds_left(self, now_ms: int) -> float | None:
        """Until the scheduled end of the phase; None if it depends on events."""
        if self.phase_end_ms is None:
            return None
        return max(0.0, (self.phase_end_ms - now_ms) / 1000)

    def rows(self) -> list[tuple[str, str, int | None, int | None, int, int]]:
        """Per pipeline and stage: recent p50 and p99 of `latest`, exact outputs, other verdicts."""
        result: list[tuple[str, str, int | None, int | None, int, int]] = []
        for pipeline in self.request.pipelines:
            for stage in self.request.stages_of(pipeline):
                counts = self.recent_latency(pipeline.name, stage)
                verdicts = self.verdicts[pipeline.name, stage]
                others = sum(verdicts[verdict] for verdict in protocol.FAILED_VERDICTS)
                p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
                result.append((pipeline.name, stage, p50, p99, verdicts["exact"], others))
        return result

    def _add_event(self, event: BusEvent) -> None:
        match event:
            case SearchStepStarted():
                self.phase, self.phase_end_ms = event.phase, None
                self._measure(event.step_run_id)
                is_warming = self.measured.endswith(protocol.WARMING)
                what = "warming up" if is_warming else f"step {event.step}"
                self.searching = f"{what} at {event.rate_per_second:.0f} records/s"
            case PhaseStarted():
                self.phase, self.phase_end_ms = event.phase, event.end_ms
                self._measure(self.request.run_id)
            case Ready() | PipelineReady():
                # A service that starts during `prepare` answers it twice.
                if event.about not in self.ready:
                    self.ready.append(event.about)
            case StartAgain():
                self.search.append(start_again_line(event))
            case Failed():
                self.failures.append(f"{event.about}: {event.reason}")
            case RunRefused():
                self.done, self.refused, self.going_on = True, event.reason, event.going_on
            case Concluded():
                self.done, self.valid, self.clean = True, event.valid, event.clean
            case SearchStepJudged():
                self.search.append(step_line(event))
            case RateJudged():
                self.search.append(search_sentence(SearchResult.model_validate(event.detail)))


def start_again_line(event: StartAgain) -> str:
    """Why a pipeline is started again before the load."""
    return (
        f"{event.pipeline} did not start because the machine was busy ({event.reason}); "
        f"it is started again (try {event.attempt})."
    )


def step_line(step: SearchStepJudged) -> str:
    """One step of a search with its evidence: `step 3: 8000/s sustained · parse 512 ms, …`."""
    figures = [
        f"{name} median {_figure(stage.highest_median_ms)} ms at most, "
        f"{stage.rise_ms_per_s:+g} ms/s, queue {_figure(stage.longest_queue_records)}"
        for name, stage in step.stages.items()
    ]
    if step.cpu_share is not None:
        figures.append(f"CPU {step.cpu_share:.0%}")
    if step.steady is not None:
        figures.append("steady" if step.steady else "not steady")
    cold = " by a cold pipeline" if step.cold else ""
    verdict = "sustained" if step.sustained else f"NOT sustained{cold}: {' '.join(step.reasons)}"
    verdict = "undecided, repeated for longer" if step.undecided else verdict
    length = f" for {step.measured_s} s"
    return f"step {step.step}: {step.rate_per_second:.0f}/s{length} {verdict}" + "".join(
        f" · {figure}" for figure in figures
    )


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


class ProgressView(Protocol):
    """Shows progress while its context is active."""

    def __enter__(self) -> "ProgressView": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: RunProgress) -> None:
        """Show the current state. Called several times a second; must not block."""


def open_view(console: Console) -> ProgressView:
    """The view that suits the output."""
    if is_quiet(console):
        return NoView()
    return LiveView(console) if redraws(console) else PlainView(console)


def headline(progress: RunProgress, time_ms: int) -> str:
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


def warming(progress: RunProgress) -> str:
    """The warm-up and what is not steady: `warming up: p50 of join still falls, 14 → 9 ms`."""
    until = " until all stages are steady" if progress.request.workload.phases.until_steady else ""
    if not progress.still:
        return PHASE_WORDS["warm_up"] + until
    more = f" (and {len(progress.still) - 1} more)" if len(progress.still) > 1 else ""
    return f"warming up{until}: {progress.still[0]}{more}"


def live_table(progress: RunProgress, console: Console) -> Table:
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

    def show(self, progress: RunProgress) -> None:
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

    def show(self, progress: RunProgress) -> None:
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

    def show(self, progress: RunProgress) -> None:
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
