"""A watch as one process, without a bus and a store, which `./tidegauge watch FILE.toml --export`
becomes: `python -m services.watcher.exporting FOLDER NAME ADDRESS PORT [OTLP [SECONDS]]`.

It runs the watch NAME of the data folder FOLDER by the code of the watcher's own process, with
counts in memory in place of the bus, and serves the figures: `/metrics`, and a page for people.
Where a problem would end the watcher's process, this one tells it and resumes from the position.
With SECONDS the watch ends after that time, and the report of its run is in FOLDER/report.json.

Counters begin at 0 with the process. After a kill, the records since the saved position are counted
by the next process, too; within a process, and after it was told to stop, each is counted once.
"""

import fcntl
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from confluent_kafka import KafkaError, KafkaException
from prometheus_client import REGISTRY
from pydantic import ValidationError

from schemas.commands import Command
from schemas.events import Event, RunJudged, WatchTrouble
from schemas.report import (
    Report,
    RunConclusion,
    ThresholdResult,
    WatchReport,
)
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.watch import Watch
from services.definitions.watches import end_watch, kept_watch, position_path
from services.runtime.events import FLUSH_TIMEOUT_S
from services.runtime.figure_metrics import FigureCounts
from services.runtime.files import write_whole
from services.runtime.kafka import said_by_kafka
from services.runtime.limits import limits
from services.runtime.logs import configure_logs
from services.runtime.process import limit_arenas, map_large_blocks, now_ms, return_pages
from services.runtime.serving import PortTakenError, serve_health
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings
from services.watcher.group_lag import TopicLag
from services.watcher.page import page
from services.watcher.position import PublishedSince
from services.watcher.process import REASONS_TO_END, WatchContext, end_left, watch_until
from services.watcher.processes import LEAST_PAUSE_S, MOST_PAUSE_S, WatchMetrics
from services.watcher.runs import WatchRuns, figures_of
from services.watcher.watched import Watched
from services.watcher.watching import CountingSink, Watching, WatchPace

REPORT: Final = "report.json"
SHOW_S: Final = 0.5  # between figures: whoever asks gets the newest ones
MOST_TROUBLES: Final = 20
MOST_SNAPSHOTS: Final = 2  # a position is that of the newest, or of the one before if it was lost
BEGIN_S: Final = 80.0  # of a watch that ends: for this long it may wait for its topics
PLACE: Final = "figures"
UNUSABLE: Final = (KafkaError._INVALID_ARG,)  # properties of clients that none accepts


class ExportedEvents:
    """In place of the bus: counts the figures, and keeps the newest problems and conclusions.

    It is to positions what the bus is: its end is a number of counts, which it remembers. A watch
    that resumes continues from the counts of its position.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.failed = 0
        self.counts = FigureCounts()
        self.troubles: deque[tuple[int, str]] = deque(maxlen=MOST_TROUBLES)
        self.judged: RunJudged | None = None
        self._tell = tell
        self._end = now_ms()  # no end that another process has noted
        self._snapshots: dict[int, dict[str, Any]] = {}

    def publish(self, event: Event, *, flush: bool = True) -> None:  # noqa: ARG002
        """Keep an event that the page or the report shows."""
        if isinstance(event, WatchTrouble):
            self._add_trouble(event)
        elif isinstance(event, RunJudged):
            self.judged = event

    def publish_figures(self, topic: str, _run_id: str, /, **fields: Any) -> None:
        """Count figures."""
        self.counts.add(topic, fields)

    def send(self, command: Command) -> None:
        """Ignore a request to services that there are not."""

    def flush(self, _timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Nothing is on its way."""
        return 0

    def ends(self) -> list[tuple[str, int, int]]:
        """The end, and remember the counts up to it."""
        self._end += 1
        self._snapshots[self._end] = self.counts.saved()
        for old in [*self._snapshots][:-MOST_SNAPSHOTS]:
            del self._snapshots[old]
        return [(PLACE, 0, self._end)]

    def published(self, _producer: str, since: list[tuple[str, int, int]]) -> PublishedSince:
        """Continue from the counts of a position of this process."""
        for _, _, end in since:
            if end in self._snapshots:
                self.counts = FigureCounts.restored(self._snapshots[end])
        return PublishedSince()

    def _add_trouble(self, event: WatchTrouble) -> None:
        text = ": ".join(filter(None, (event.topic, event.reason or event.invalid or event.kind)))
        if text not in {known for _, known in self.troubles}:
            self._tell(f"Problem: {text}")
        self.troubles.append((now_ms(), text))


@dataclass
class ExportedState:
    """What the page shows. report: of the run up to now; None until the watch has begun. problem:
    why it is not running now; empty if it is."""

    watch: Watch
    events: ExportedEvents
    report: Report | None = None
    problem: str = ""
    lags: list[TopicLag] = field(default_factory=list)

    def page(self) -> str:
        """The page now."""
        return page(self.watch, self.report, self.problem, self.lags, [*self.events.troubles])


class ExportContext(WatchContext):
    """Where an exported watch runs. seconds: after which it ends; None for never."""

    def __init__(
        self, settings: ServiceSettings, state: ExportedState, seconds: float | None = None
    ) -> None:
        super().__init__(settings, state.watch.name)
        self.state, self.results = state, state.events
        self.pace = WatchPace(show_s=SHOW_S)
        self.metrics = WatchMetrics()
        self.stop = threading.Event()
        self._seconds, self._began_ms = seconds, now_ms()
        self._figures = state.events.counts.saved()

    def open_events(self, _producer: str) -> CountingSink:
        """The counts in memory."""
        return self.state.events

    def show(self, watching: Watching) -> None:
        """Replace the figures that are served, and end the watch if it is time. While a watch that
        resumed counts again, the figures of before stay."""
        state, name = self.state, self.state.watch.name
        if watching.behind is None:
            self._figures = state.events.counts.saved()
        shown = self.shown(watching) | {"figures": self._figures}
        state.lags = [TopicLag(*each) for each in shown["lags"]]
        self.metrics.set(name, shown)
        state.report = report_so_far(state.watch, watching.watched, watching.runs)
        state.problem = ""
        return_pages()
        if self._seconds is not None and self._is_over(watching.watched, self._seconds):
            self.end()

    def _is_over(self, watched: Watched, seconds: float) -> bool:
        """Whether a watch has lasted for so long. One whose run has all that the topics have reads
        what was there before it began, however long that takes, and as much of the present."""
        if watched.watch.is_one_run:
            return watched.before_ms >= self._began_ms + 1000 * seconds
        return now_ms() >= watched.since_ms + 1000 * seconds

    def end(self) -> None:
        """Stop. A watch that is to end is concluded, another one goes on at the next start."""
        if self._seconds is not None:
            with suppress(DefinitionError):
                end_watch(self.settings.data, self.state.watch.name)
        self.stop.set()

    def environment(self) -> dict[str, Any]:
        """The machine. Nothing is started to find out more."""
        allowed = limits()
        return {
            "python": platform.python_version(),
            "host": platform.node(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": allowed.cores,
            "memory_bytes": allowed.memory_bytes,
        }


def report_so_far(watch: Watch, watched: Watched, runs: WatchRuns) -> Report:
    """The report of the run up to which everything is judged, as if it ended there."""
    run = watched.counting.run_of(max(watched.before_ms, watched.since_ms))
    from_ms = max(watched.from_ms, runs.end_ms(run - 1))
    span = WatchReport(from_ms=from_ms, until_ms=max(from_ms, watched.before_ms))
    reasons = runs.reasons.get(run, [])
    return report_of(watch, watched, runs.id_of(run), RunConclusion(watch=span), reasons)


def final_report(context: ExportContext) -> Report:
    """The report of the newest concluded run. Raises DefinitionError if there is none."""
    judged, watching, state = context.state.events.judged, context.newest, context.state
    if judged is None or watching is None:
        reason = state.problem or "it was stopped before"
        raise DefinitionError(f"The watch {state.watch.name} did not begin: {reason}")
    detail = judged.detail
    rows = [ThresholdResult.model_validate(row) for row in detail.pop("thresholds", [])]
    conclusion, reasons = RunConclusion.model_validate(detail), judged.invalid_reasons
    report = report_of(state.watch, watching.watched, judged.run_id, conclusion, reasons)
    sizes = {side: state.events.counts.mean_bytes(side == "input") for side in ("input", "output")}
    more = {"thresholds": rows, "environment": context.environment(), "mean_bytes": sizes}
    return report.model_copy(update=more)


def report_of(
    watch: Watch,
    watched: Watched,
    run_id: str,
    conclusion: RunConclusion,
    reasons: Iterable[str],
) -> Report:
    """The report of a run. reasons: why it is not valid."""
    span = conclusion.watch or WatchReport()
    run = watched.counting.run_of(span.from_ms)
    seconds = (span.until_ms - span.from_ms) / 1000
    hops = [hop.totals[run] for hop in watched.hops]
    totals = watched.counting.totals[run]
    figures = figures_of(watch, totals, seconds, hops)
    return Report(
        run_id=run_id,
        workload=watch.name,
        valid=not reasons,
        invalid_reasons=[*reasons],
        input=figures.input,
        pipelines=figures.pipelines,
        conclusion=conclusion,
        groups=totals.lags.rows(),
    )


def tell(text: str) -> None:
    """Print a line. Text of others is printed without control characters."""
    print("".join(each if each.isprintable() else "\ufffd" for each in text), flush=True)


def locked(folder: Path, name: str) -> IO[str]:
    """The lock of a watch, held until the file is closed. Raises DefinitionError."""
    file = (folder / f"{name}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise DefinitionError(f"The watch {name} is exported by another process.") from error
    return file


def keep_watching(context: ExportContext, begin_s: float | None) -> None:
    """Watch until told to stop, and try again after a problem. begin_s: for which a watch may take
    to begin; None for ever. Raises DefinitionError for what no later try can do."""
    name, state = context.state.watch.name, context.state
    first_s, pause_s = time.monotonic(), LEAST_PAUSE_S
    while not context.stop.is_set():
        try:
            end_left(name, context, context.stop)
            watch_until(context.stop, name, context)
            return
        except REASONS_TO_END as error:
            has_begun = state.report is not None
            state.problem = _words(error)
            if not has_begun and _is_final(error):
                raise DefinitionError(f"watch {name}: {state.problem}") from error
        if not has_begun and begin_s is not None and time.monotonic() - first_s > begin_s:
            raise DefinitionError(f"The watch {name} did not begin: {state.problem}")
        context.metrics.stop(name)
        state.events.publish(WatchTrouble(kind="ended", watch=name, reason=state.problem))
        context.stop.wait(pause_s)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def _words(error: Exception) -> str:
    return first_mistake(error) if isinstance(error, ValidationError) else said_by_kafka(error)


def _is_final(error: Exception) -> bool:
    """Whether an error is one of the watch file or the position, and not of a server."""
    if isinstance(error, KafkaException):
        return isinstance(error.args[0], KafkaError) and error.args[0].code() in UNUSABLE
    return isinstance(error, ValueError)


@contextmanager
def pushing(context: ExportContext, otlp: str) -> Iterator[None]:
    """Push the metrics to a collector while the context is open. otlp: its address, or empty."""
    if not otlp:
        yield
        return
    from services.watcher.otlp import OtlpPush, exporter_to  # packages of an extra

    push = OtlpPush(exporter_to(otlp), context.metrics, tell)
    try:
        yield
    finally:
        push.close()


def export(context: ExportContext, host: str, port: int, otlp: str, seconds: float | None) -> None:
    """Serve the figures of a watch until told to stop; with `seconds` until it ends, and write its
    report. otlp: address of a collector to push them to, or empty. Raises DefinitionError,
    PortTakenError, OSError."""
    state, folder = context.state, context.settings.data
    name = state.watch.name

    def is_ready() -> bool:
        return state.report is not None and not state.problem

    with locked(folder, name):
        server = serve_health(host, port, is_ready, page=state.page)
        REGISTRY.register(context.metrics)
        tell(f"Its figures: http://{host}:{port}/ and for Prometheus: http://{host}:{port}/metrics")
        with pushing(context, otlp):
            keep_watching(context, BEGIN_S if seconds is not None else None)
        if seconds is not None:
            if position_path(folder, name).exists():  # a problem kept it from its end
                end_left(name, context, threading.Event())
            write_whole(folder / REPORT, final_report(context).model_dump_json(exclude_unset=True))
        server.shutdown()


def main(folder: str, name: str, host: str, port: str, *more: str) -> None:
    """Export one watch. Exits with one sentence if that is impossible."""
    otlp, seconds, *_ = *more, "", ""
    settings = load_settings(ServiceSettings).model_copy(update={"data": Path(folder)})
    configure_logs("export", "error")
    limit_arenas()
    map_large_blocks()
    lasts_s = float(seconds) if seconds else None
    try:
        watch = kept_watch(settings.data, name)
        context = ExportContext(settings, ExportedState(watch, ExportedEvents(tell)), lasts_s)

        def request_stop(_signal: int, _frame: FrameType | None) -> None:
            context.end()

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        export(context, host, int(port), otlp, lasts_s)
    except (DefinitionError, PortTakenError, *REASONS_TO_END) as error:
        print(f"tidegauge: {_words(error)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main(*sys.argv[1:])
