"""The verb `watch`."""

import json
import math
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from analysis.thresholds import left_to_thresholds
from deploy.local.parts import lasting_parts
from schemas.protocol import FAILED_VERDICTS
from schemas.validation_errors import first_mistake
from schemas.watch import Cluster, Registry, Watch, WatchedKafka
from services.console.files import check_file, report_files, write_file
from services.console.remote_stack import open_stack
from services.console.report import build_whole_report
from services.console.show import show_report
from services.console.verbs.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_THRESHOLD,
    dashboards,
    teller,
)
from services.runtime.clickhouse import QueryError, query, store_url
from services.runtime.definitions import DefinitionError
from services.runtime.settings import ServiceSettings
from services.runtime.watches import (
    end_watch,
    keep_watch,
    kept_watch,
    kept_watches,
    position_path,
    read_cluster,
    read_watch,
)

LOOK_S = 0.25
TELL_S = 10.0
END_S = 60.0  # a process has 8 s to stop; the next one catches up for 30 s and concludes
PROJECTED_S = 10.0
LEAST_DURATION_S, MOST_DURATION_S = 5, 43_200
RUNS = (
    "SELECT run_id, concluded FROM tidegauge.runs"
    " WHERE match(run_id, concat('^watch-', {name:String}, '-[0-9]{8}-[0-9]{6}(-[0-9a-f]+)?$'))"
)
FIGURES = (
    "SELECT sum(l.count) AS outputs, quantileExactWeighted(0.5)(latency_ms, l.count) AS p50_ms,"
    " quantileExactWeighted(0.99)(latency_ms, l.count) AS p99_ms, max(latency_ms) AS max_ms"
    " FROM tidegauge.results_latency AS l WHERE pipeline = {name:String}"
    " AND startsWith(run_id, 'watch-') AND l.time > now64(3) - toIntervalSecond(10)"
    " HAVING outputs > 0"
)
VERDICTS = (
    "SELECT sum(v.missing) AS missing, sum(v.late) AS late, sum(v.duplicate) AS duplicate,"
    " sum(v.unexpected) AS unexpected FROM tidegauge.results_verdicts AS v"
    " WHERE pipeline = {name:String} AND startsWith(run_id, 'watch-')"
    " AND v.time > now64(3) - toIntervalSecond(10)"
)


def watch(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Watch a pipeline until Ctrl-C, for some seconds with --duration, or return at once with
    --detach; or list watches, or end one."""
    if options.infer:
        return _infer(options, settings)
    if settings.store_url:
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
    found = read_watch(options.file)
    if options.duration is not None:
        return _watch_for(options, found, settings, console)
    _refuse_without_duration(options)
    stack, say, began = open_stack(settings, lasting_parts), teller(console), False
    try:
        (stack.up_detached if options.detach else stack.up)(say)
        was_there = found.name in kept_watches(settings.data)
        is_new, began = keep_watch(settings.data, found), True
        _say_what(console, settings, found, "starts" if is_new else "continues")
        if options.detach or (was_there and stack.attached):
            return 0
        _follow(console, settings, found, stack.check)
    except KeyboardInterrupt:
        if not began:
            raise
        _end(settings, found.name, stack.check)
        console.print(f"The watch {found.name} is ended; its runs are kept: tidegauge runs")
    finally:
        if not options.detach:
            stack.close(say)
    return 0


def _refuse_without_duration(options: Namespace) -> None:
    given = [name for name, path, _ in report_files(options) if path]
    given += ["--threshold"] if options.threshold else []
    if given:
        raise DefinitionError(f"{given[0]} needs --duration S; the file has thresholds of its own.")


def _watch_for(
    options: Namespace, found: Watch, settings: ServiceSettings, console: Console
) -> int:
    """Watch for some seconds, as a single run, and print its report. Exit code as of `run`."""
    found = _for_some_seconds(options, found)
    if found.name in kept_watches(settings.data):
        raise DefinitionError(
            f"The watch {found.name} already exists: tidegauge watch --end {found.name}"
        )
    for option, path, _ in report_files(options):
        check_file(option, path)
    stack, say, url = open_stack(settings, lasting_parts), teller(console), store_url(settings)
    interrupted = False
    try:
        stack.up(say)
        known = _runs_of(url, found.name)
        keep_watch(settings.data, found)
        _say_what(console, settings, found, f"runs for {options.duration} s")
        try:
            _wait(lambda: bool(_open_runs(url, found.name)), END_S, stack.check)
            _follow(console, settings, found, stack.check, options.duration)
        except KeyboardInterrupt:
            interrupted = True
        _end(settings, found.name, stack.check)
        new = sorted(_runs_of(url, found.name) - known)
        if not new:
            raise DefinitionError(f"The watch {found.name} did not begin; see: tidegauge status")
        report = build_whole_report(url, new[-1])
        show_report(console, report)
    finally:
        stack.close(say)
    for option, path, write in report_files(options):
        if path is not None:
            write_file(option, path, write(report))
    return EXIT_INTERRUPTED if interrupted else _exit_code(report)


def _for_some_seconds(options: Namespace, found: Watch) -> Watch:
    """The watch with the thresholds of the command, and with runs so long that all of it is one.
    Raises DefinitionError."""
    if options.detach:
        raise DefinitionError("--duration and --detach: a watch in the background has no end.")
    if not LEAST_DURATION_S <= options.duration <= MOST_DURATION_S:
        raise DefinitionError(
            f"--duration must be from {LEAST_DURATION_S} to {MOST_DURATION_S} seconds."
        )
    if found.begin != "now":
        raise DefinitionError('--duration needs begin = "now" in the file.')
    now_s, span_s = int(time.time()), options.duration + int(2 * END_S)
    run_s = next(one for one in count(span_s) if now_s // one == (now_s + span_s) // one)
    changed = {"thresholds": (*found.thresholds, *options.threshold), "run_s": run_s}
    try:
        return Watch.model_validate(found.model_dump() | changed)
    except ValidationError as error:
        raise DefinitionError(f"--threshold: {first_mistake(error)}.") from error


def _exit_code(report: dict[str, Any]) -> int:
    """0 only for a valid run whose outputs were exact, except verdicts that a threshold limits."""
    if not report["valid"]:
        return EXIT_FAILED
    if any(not row["passed"] for row in report["thresholds"]):
        return EXIT_THRESHOLD
    limited = left_to_thresholds(report["thresholds"])
    (pipeline,) = report["pipelines"].values()
    (stage,) = pipeline["stages"].values()
    failed = [one for one in FAILED_VERDICTS if stage["verdicts"][one] and one not in limited]
    is_counted = stage["verdicts"]["exact"] and not report["conclusion"]["watch"]["refused"]
    return 0 if is_counted and not failed else EXIT_FAILED


def _infer(options: Namespace, settings: ServiceSettings) -> int:
    """Print inferred settings, from a process of the watcher. It gets logins on standard input."""
    told = _cluster(options).model_dump_json()
    return subprocess.run(
        [sys.executable, "-m", "services.watcher.inferring", *options.infer],
        env=os.environ | settings.child_variables,
        input=told,
        text=True,
        check=False,
    ).returncode


def _cluster(options: Namespace) -> Cluster:
    """The cluster and registry of a file, or of the options, which take precedence. Raises
    DefinitionError."""
    found = read_cluster(options.file) if options.file else Cluster()
    if options.kafka:
        found = found.model_copy(update={"kafka": WatchedKafka(bootstrap=options.kafka)})
    if not options.registry:
        return found
    try:
        registry = Registry.model_validate({"url": options.registry})
    except ValidationError as error:
        raise DefinitionError(f"--registry: {first_mistake(error)}.") from error
    return found.model_copy(update={"registry": registry})


def _say_what(console: Console, settings: ServiceSettings, found: Watch, what: str) -> None:
    inputs = ", ".join(one.topic for one in found.inputs)
    outputs = ", ".join(one.topic for one in found.outputs)
    console.print(f"The watch {found.name} {what}: {inputs} → {outputs}", soft_wrap=True)
    console.print(f"Watch it at {dashboards(settings)}d/tidegauge-watch", soft_wrap=True)


def _follow(
    console: Console,
    settings: ServiceSettings,
    found: Watch,
    check: Callable[[], None],
    most_s: float = math.inf,
) -> None:
    begin_s = told_s = time.monotonic()
    while time.monotonic() - begin_s < most_s:
        check()
        if time.monotonic() - told_s >= TELL_S:
            told_s = time.monotonic()
            console.print(_figures(store_url(settings), found.name), soft_wrap=True)
        time.sleep(LOOK_S)


def _figures(url: str, name: str) -> str:
    """The last ten seconds in one line."""
    try:
        rows, (bad,) = query(url, FIGURES, name=name), query(url, VERDICTS, name=name)
    except QueryError as error:
        return f"The store does not answer: {error}"
    wrong = ", ".join(f"{count} {verdict}" for verdict, count in bad.items() if int(count))
    if not rows:
        return f"no output was paired in the last 10 s{'; ' if wrong else ''}{wrong}"
    row = rows[0]
    latency = f"p50 {row['p50_ms']}, p99 {row['p99_ms']}, max {row['max_ms']} ms"
    return f"{int(row['outputs']) / TELL_S:.1f} pairs/s, {latency}; {wrong or 'no errors'}"


def _end(settings: ServiceSettings, name: str, check: Callable[[], None]) -> None:
    """End a watch and wait until its runs are concluded and projected by the store."""
    if name in kept_watches(settings.data):
        end_watch(settings.data, name)
    _wait(lambda: not position_path(settings.data, name).exists(), END_S, check)
    _wait(lambda: not _open_runs(store_url(settings), name), PROJECTED_S, check)


def _wait(done: Callable[[], bool], most_s: float, check: Callable[[], None]) -> None:
    end_s = time.monotonic() + most_s
    while not done() and time.monotonic() < end_s:
        check()
        time.sleep(LOOK_S)


def _open_runs(url: str, name: str) -> int:
    try:
        return sum(not row["concluded"] for row in query(url, RUNS, name=name))
    except QueryError:
        return 1


def _runs_of(url: str, name: str) -> set[str]:
    """Ids of the runs of a watch. Raises QueryError."""
    return {row["run_id"] for row in query(url, RUNS, name=name)}


def _list(console: Console, settings: ServiceSettings, as_json: bool) -> None:
    rows = [row for name in kept_watches(settings.data) if (row := _row(settings.data, name))]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        topics = f"{', '.join(row['inputs'])} → {', '.join(row['outputs'])}"
        saved = row["saved_at"] or "never"
        what = row["problem"] or f"{topics}, position saved {saved}"
        text = f"{row['name']}: {what}"
        console.print(text, soft_wrap=True, highlight=False)
    if not rows:
        console.print("There is no watch; start one with: tidegauge watch FILE.toml")


def _row(data: Path, name: str) -> dict[str, Any] | None:
    """A watch of the list; None if it was removed in the meantime. saved_at: when its position was
    last saved, ISO 8601, None if never. problem: why its file is of no use, empty if it is."""
    inputs, outputs, problem, saved_at = [], [], "", None
    try:
        found = kept_watch(data, name)
        inputs = [one.topic for one in found.inputs]
        outputs = [one.topic for one in found.outputs]
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        problem = f"its file cannot be read; end it with: tidegauge watch --end {name}"
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
