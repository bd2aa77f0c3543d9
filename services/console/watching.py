"""What the verb `watch` does: a watch followed from its start to its end; with --duration, a watch
of some seconds that gates a job.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from rich.console import Console

from deploy.local.parts import lasting_parts
from schemas.report import Report
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.watch import MOST_HOPS, Cluster, Registry, Watch, WatchedKafka
from services.console.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_THRESHOLD, print_json
from services.console.files import report_files, write_file
from services.console.remote_stack import open_stack, watch_page
from services.console.report.build import build_whole_report
from services.console.report.terminal import show_report
from services.console.report.words import watch_complaints
from services.console.run_command import RunError
from services.console.terminal import harmless, is_quiet, say_unless_quiet, teller
from services.definitions.watches import (
    end_watch,
    judged_until_ms,
    keep_watch,
    kept_watch,
    kept_watches,
    position_path,
    read_cluster,
    read_watch,
)
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
STUCK_S = 300.0  # without a judged record, the watched cluster or the watcher does not answer
LEAST_DURATION_S, MOST_DURATION_S = 5, 43_200
EXPORTER: Final = "services.watcher.exporting"
LISTEN: Final = "127.0.0.1"
EXPORT_PORT: Final = 9_707
BEFORE_S = 600
AFTER_S = 4_200  # records up to an hour ahead of the watcher's clock are read


@dataclass(frozen=True)
class WatchOptions:
    """The options of `watch`. None, empty: not given. infer: names of two topics; through: of those
    between them."""

    file: Path | None = None
    detach: bool = False
    duration: int | None = None
    thresholds: Sequence[str] = ()
    report: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    benchmark: Path | None = None
    json: bool = False
    end: str | None = None
    infer: Sequence[str] | None = None
    through: Sequence[str] = ()
    kafka: str = ""
    registry: str = ""
    export: bool = False
    port: int | None = None
    listen: str = ""
    otlp: str = ""


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
        watch = self.watch
        sides = (side for side in (watch.inputs, watch.through, watch.outputs) if side)
        topics = " → ".join(", ".join(each.topic for each in side) for side in sides)
        what = what or ("starts" if is_new else "continues")
        say_unless_quiet(self.console, f"The watch {watch.name} {what}: {topics}")
        say_unless_quiet(self.console, f"Watch it at {self.page}")

    def follow(self, most_s: float = math.inf, reason: str = "") -> None:
        """Print a line with the latest figures every TELL_S, for so many seconds, and each new
        problem. reason: the last problem that was told. If only results are printed, the figures
        of a limited time are left out: its report has them. A watch whose run has all that the
        topics have is followed until it has judged all records before the end of that time. Raises
        RunError if it judges none for long."""
        begin_s = told_s = time.monotonic()
        grew_s = begin_s + most_s
        is_behind, judged_ms = self.watch.is_one_run and most_s < math.inf, 0
        end_ms = now_ms() + 1000 * most_s
        while time.monotonic() - begin_s < most_s or (is_behind and judged_ms < end_ms):
            self.check()
            if time.monotonic() >= grew_s and (now := self._judged_ms()) > judged_ms:
                judged_ms, grew_s = now, time.monotonic()
            if (silent_s := time.monotonic() - grew_s) > STUCK_S:
                why = f": {harmless(reason)}" if reason else ""
                raise RunError(f"No record was judged for {silent_s:.0f} s{why}.")
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

    def _judged_ms(self) -> int:
        return judged_until_ms(self.settings.data, self.watch.name) or 0

    def _open_runs(self, known: Set[str]) -> bool:
        try:
            return any(not done for run, done in self.runs().items() if run not in known)
        except QueryError:
            return True

    def _figures(self) -> str:
        """The last ten seconds in one line."""
        url, of = store_url(self.settings), (self.watch.name, self.watch.stage)
        try:
            recent = runs.recent_outputs(url, *of, SHOWN_S)
            faults = runs.recent_faults(url, *of, SHOWN_S)
        except QueryError as error:
            return f"The store does not answer: {error}"
        wrong = ", ".join(f"{count} {verdict}" for verdict, count in faults.items() if count)
        if recent is None:
            return f"no output was paired in the last {SHOWN_S} s{'; ' if wrong else ''}{wrong}"
        latency = f"p50 {recent.p50_ms}, p99 {recent.p99_ms}, max {recent.max_ms} ms"
        return f"{recent.outputs / SHOWN_S:.1f} pairs/s, {latency}; {wrong or 'no errors'}"


def watch(options: WatchOptions, settings: ServiceSettings, console: Console) -> int:
    """Watch a pipeline until Ctrl-C, for some seconds with --duration, or return at once with
    --detach; or list watches, or end one."""
    _refuse(options)
    if options.infer:
        return _infer(options, settings)
    if settings.store_url and not options.export:
        raise DefinitionError(
            "The services run elsewhere (TIDEGAUGE_STORE_URL). Where their watcher runs:"
            " python -m services.watcher keep FILE.toml"
        )
    if options.end:
        end_watch(settings.data, options.end)
        console.print(f"The watch {options.end} is ended.")
        return 0
    if options.file is None:
        _list(console, settings, options.json)
        return 0
    result = read_watch(options.file)
    if options.export or options.duration is not None:
        measure = _export if options.export else gate
        return measure(options, result, settings, console)
    refuse_without_duration(options)
    stack, say, began = open_stack(settings, lasting_parts), teller(console), False
    following = Following(result, settings, console, watch_page(settings), stack.check)
    try:
        (stack.up_detached if options.detach else stack.up)(say)
        was_there, began = following.is_kept, True
        following.begin("")
        if options.detach or (was_there and stack.attached):
            return 0
        following.follow()
    except KeyboardInterrupt:
        if not began:
            raise
        following.end()
        console.print(f"The watch {result.name} is ended; its runs are kept: ./tidegauge runs")
    finally:
        if not options.detach:
            stack.close(say)
    return 0


def _refuse(options: WatchOptions) -> None:
    """Raises DefinitionError for an option that would have no effect."""
    given = [name for name, path, _ in report_files(options) if path]
    given += ["--threshold"] if options.thresholds else []
    given += ["--duration"] if options.duration is not None else []
    given += ["--detach"] if options.detach else []
    given += ["--export"] if options.export else []
    if given and (options.infer or options.end):
        raise DefinitionError(f"{given[0]} is for watching a FILE.toml.")
    if given and options.file is None:
        raise DefinitionError(f"{given[0]} needs a FILE.toml.")
    of_export = {"--listen": options.listen, "--port": options.port, "--otlp": options.otlp}
    for option, value in of_export.items():
        if value and not options.export:
            raise DefinitionError(f"{option} needs --export.")
    if options.export and options.detach:
        raise DefinitionError("--export and --detach: an export is a process of its own.")
    if options.json and (options.file or options.infer or options.end):
        raise DefinitionError("--json is for the list of watches.")
    if not options.infer and (options.kafka or options.registry):
        name = "--kafka" if options.kafka else "--registry"
        raise DefinitionError(f"{name} is for --infer; a FILE.toml has an address of its own.")
    if options.through and not options.infer:
        raise DefinitionError("--through is for --infer; a FILE.toml names its topics.")
    topics = (*(options.infer or ()), *options.through)
    if len(set(topics)) < len(topics):
        raise DefinitionError("--infer and --through: a topic of a path is named twice.")
    if len(options.through) >= MOST_HOPS:
        raise DefinitionError(f"--through: a path has at most {MOST_HOPS} hops.")


def _infer(options: WatchOptions, settings: ServiceSettings) -> int:
    """Print inferred settings, from a process of the watcher. It gets logins on standard input."""
    cluster = _cluster(options).model_dump_json()
    first, last = options.infer or ()
    return subprocess.run(
        [sys.executable, "-m", "services.watcher.inferring", first, *options.through, last],
        env=os.environ | settings.child_variables,
        input=cluster,
        text=True,
        check=False,
    ).returncode


def _cluster(options: WatchOptions) -> Cluster:
    """The cluster and registry of a file, or of the options, which take precedence. Raises
    DefinitionError."""
    result = read_cluster(options.file) if options.file else Cluster()
    if options.kafka:
        result = result.model_copy(update={"kafka": WatchedKafka(bootstrap=options.kafka)})
    if not options.registry:
        return result
    try:
        registry = Registry.model_validate({"url": options.registry})
    except ValidationError as error:
        raise DefinitionError(f"--registry: {first_mistake(error)}.") from error
    return result.model_copy(update={"registry": registry})


def _export(options: WatchOptions, file: Watch, settings: ServiceSettings, console: Console) -> int:
    """Become the process that exports a watch; with --duration, wait for its report and print it.
    file: the watch as written in its file."""
    try:
        host = str(IPv4Address(options.listen or LISTEN))
    except ValueError as error:
        raise DefinitionError(
            "--listen must be an IPv4 address of this machine, or 0.0.0.0 for all of them."
        ) from error
    port, folder = options.port or EXPORT_PORT, settings.data.absolute()
    _check_otlp(options.otlp)

    def command(data: Path, *more: str) -> list[str]:
        served = (file.name, host, str(port), options.otlp)
        return [sys.executable, "-m", EXPORTER, str(data), *served, *more]

    if options.duration is None:
        refuse_without_duration(options)
        keep_watch(folder / "export", file)
        if is_quiet(console):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        environ = os.environ | settings.child_variables
        os.execve(sys.executable, command(folder / "export"), environ)
    result = in_one_run(checked(options, file), options.duration)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="export-", dir=folder) as name:
        keep_watch(Path(name), result)
        code, interrupted = _waited_for(command(Path(name), str(options.duration)), settings)
        if code:
            return EXIT_INTERRUPTED if interrupted else code
        report = Report.model_validate_json((Path(name) / "report.json").read_bytes())
    show_report(console, report)
    for option, path, write in report_files(options):
        if path is not None:
            write_file(option, path, write(report))
    return EXIT_INTERRUPTED if interrupted else exit_code(report)


def _check_otlp(url: str) -> None:
    """Raises DefinitionError if an address cannot be that of a collector, or the packages that
    push to it are missing."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address &= not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        is_address = False
    if not is_address:
        raise DefinitionError(
            "--otlp must be the address of a collector, such as http://localhost:4318; a login is"
            " in OTEL_EXPORTER_OTLP_HEADERS."
        )
    if find_spec("opentelemetry") is None:
        raise DefinitionError("--otlp needs the packages of: pip install 'tidegauge[otlp]'")


def _waited_for(command: list[str], settings: ServiceSettings) -> tuple[int, bool]:
    """The exit code of a process, and whether it was interrupted: then it ends by itself."""
    environ = os.environ | settings.child_variables
    with subprocess.Popen(command, env=environ, stdout=sys.stderr) as process:
        try:
            return process.wait(), False
        except KeyboardInterrupt:
            process.terminate()
            return process.wait(), True


def _list(console: Console, settings: ServiceSettings, as_json: bool) -> None:
    rows = [row for name in kept_watches(settings.data) if (row := _row(settings.data, name))]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        topics = f"{', '.join(row['inputs'])} → {', '.join(row['outputs'])}"
        saved = row["saved_at"] or "never"
        what = row["problem"] or f"{topics}, position saved {saved}"
        text = f"{row['name']}: {what}"
        console.print(text, soft_wrap=True, highlight=False)
    if not rows:
        console.print("There is no watch; start one with: ./tidegauge watch FILE.toml")


def _row(data: Path, name: str) -> dict[str, Any] | None:
    """A watch of the list; None if it was removed in the meantime. saved_at: when its position was
    last saved, ISO 8601, None if never. problem: why its file is of no use, empty if it is."""
    inputs, outputs, problem, saved_at = [], [], "", None
    try:
        result = kept_watch(data, name)
        inputs = [each.topic for each in result.inputs]
        outputs = [output.topic for output in result.outputs]
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        problem = f"its file cannot be read; end it with: ./tidegauge watch --end {name}"
    with suppress(FileNotFoundError):
        saved_s = position_path(data, name).stat().st_mtime
        saved_at = datetime.fromtimestamp(saved_s, UTC).isoformat(timespec="seconds")
    return {
        "name": name,
        "inputs": inputs,
        "outputs": outputs,
        "saved_at": saved_at,
        "problem": problem,
    }


def gate(options: WatchOptions, file: Watch, settings: ServiceSettings, console: Console) -> int:
    """Watch for some seconds, as a single run, and print its report. Exit code as of `run`. file:
    the watch as written in its file."""
    result, duration_s = checked(options, file), options.duration or 0
    stack, say = open_stack(settings, lasting_parts), teller(console)
    try:
        stack.up(say)
        one_run, page = in_one_run(result, duration_s), watch_page(settings)
        watch = Following(one_run, settings, console, page, stack.check)
        if watch.is_kept:
            raise DefinitionError(
                f"The watch {result.name} already exists: ./tidegauge watch --end {result.name}"
            )
        known = set(watch.runs())
        try:
            interrupted = _followed(watch, known, duration_s)
        finally:
            watch.end(known)
        new = watch.new_runs(known)
        if interrupted and not new:
            return EXIT_INTERRUPTED
        if len(new) != 1:
            raise DefinitionError(f"The watch {result.name} has {len(new)} runs instead of one.")
        report = build_whole_report(store_url(settings), *new)
        show_report(console, report)
    finally:
        stack.close(say)
    for option, path, write in report_files(options):
        if path is not None:
            write_file(option, path, write(report))
    return EXIT_INTERRUPTED if interrupted else exit_code(report)


def _followed(watch: Following, known: set[str], duration_s: int) -> bool:
    """Start the watch and follow it from the begin of its run, which may have to wait for a topic;
    returns whether that was interrupted. Raises DefinitionError if it does not begin."""
    reasons = [""]

    def has_begun() -> bool:
        if watch.new_runs(known):
            return True
        if (reason := watch.trouble()) not in reasons:
            reasons.append(reason)
            text = f"It waits, for at most {BEGIN_S:.0f} s: {harmless(reason)}"
            say_unless_quiet(watch.console, text)
        return False

    try:
        watch.begin(f"runs for {duration_s} s")
        if not watch.wait(has_begun, BEGIN_S):
            reason = reasons[-1] or "see the log of the watcher."
            raise DefinitionError(f"The watch {watch.watch.name} did not begin: {reason}")
        watch.follow(duration_s, reasons[-1])
    except KeyboardInterrupt:
        return True
    return False


def checked(options: WatchOptions, watch: Watch) -> Watch:
    """The watch with the thresholds of the command. Raises DefinitionError for wrong options."""
    if options.detach:
        raise DefinitionError("--duration and --detach: a watch in the background has no end.")
    if not LEAST_DURATION_S <= (options.duration or 0) <= MOST_DURATION_S:
        raise DefinitionError(
            f"--duration must be from {LEAST_DURATION_S} to {MOST_DURATION_S} seconds."
        )
    changed = {"thresholds": (*watch.thresholds, *options.thresholds)}
    try:
        return Watch.model_validate(watch.model_dump() | changed)
    except ValidationError as error:
        raise DefinitionError(f"--threshold: {first_mistake(error)}.") from error


def in_one_run(watch: Watch, duration_s: int) -> Watch:
    """The watch with runs so long that one contains all of it, and what is read before and after:
    the first inputs are older than the watch, and clocks of producers may be ahead. That of one
    that begins with the earliest record contains all times since 1970, however long it reads."""
    first_s = int(time.time()) - BEFORE_S
    last_s = first_s + BEFORE_S + duration_s + AFTER_S
    if watch.begin == "earliest":
        return watch.model_copy(update={"run_s": 2 * last_s})
    run_s = next(each for each in count(last_s - first_s) if first_s // each == last_s // each)
    return watch.model_copy(update={"run_s": run_s})


def refuse_without_duration(options: WatchOptions) -> None:
    """Raises DefinitionError if an option needs --duration."""
    given = [name for name, path, _ in report_files(options) if path]
    given += ["--threshold"] if options.thresholds else []
    if given:
        raise DefinitionError(f"{given[0]} needs --duration S; the file has thresholds of its own.")


def exit_code(report: Report) -> int:
    """0 only for a valid run without complaints."""
    if not report.valid:
        return EXIT_FAILED
    if any(not row.passed for row in report.thresholds):
        return EXIT_THRESHOLD
    return EXIT_FAILED if watch_complaints(report) else 0
