"""The verb `watch` with --duration: a watch of some seconds that gates a job."""

import time
from argparse import Namespace
from itertools import count

from pydantic import ValidationError
from rich.console import Console

from deploy.local.parts import lasting_parts
from schemas.report import Report
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.watch import Watch
from services.console.files import check_file, report_files, write_file
from services.console.following import BEGIN_S, Following
from services.console.remote_stack import open_stack
from services.console.report.build import build_whole_report
from services.console.report.terminal import show_report
from services.console.report.words import watch_complaints
from services.console.terminal import harmless, say_unless_quiet
from services.console.verbs.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_THRESHOLD,
    teller,
    watch_page,
)
from services.runtime.clickhouse import store_url
from services.runtime.settings import ServiceSettings

LEAST_DURATION_S, MOST_DURATION_S = 5, 43_200
BEFORE_S = 600
AFTER_S = 4_200  # records up to an hour ahead of the watcher's clock are read


def gate(options: Namespace, file: Watch, settings: ServiceSettings, console: Console) -> int:
    """Watch for some seconds, as a single run, and print its report. Exit code as of `run`. file:
    the watch as written in its file."""
    found = checked(options, file)
    stack, say = open_stack(settings, lasting_parts), teller(console)
    try:
        stack.up(say)
        one_run, page = in_one_run(found, options.duration), watch_page(settings)
        watch = Following(one_run, settings, console, page, stack.check)
        if watch.is_kept:
            raise DefinitionError(
                f"The watch {found.name} already exists: ./tidegauge watch --end {found.name}"
            )
        known = set(watch.runs())
        try:
            interrupted = _followed(watch, known, options.duration)
        finally:
            watch.end(known)
        new = watch.new_runs(known)
        if interrupted and not new:
            return EXIT_INTERRUPTED
        if len(new) != 1:
            raise DefinitionError(f"The watch {found.name} has {len(new)} runs instead of one.")
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


def checked(options: Namespace, found: Watch) -> Watch:
    """The watch with the thresholds of the command. Raises DefinitionError for wrong options."""
    if options.detach:
        raise DefinitionError("--duration and --detach: a watch in the background has no end.")
    if not LEAST_DURATION_S <= options.duration <= MOST_DURATION_S:
        raise DefinitionError(
            f"--duration must be from {LEAST_DURATION_S} to {MOST_DURATION_S} seconds."
        )
    if found.begin != "now":
        raise DefinitionError('--duration needs begin = "now" in the file.')
    for option, path, _ in report_files(options):
        check_file(option, path)
    changed = {"thresholds": (*found.thresholds, *options.threshold)}
    try:
        return Watch.model_validate(found.model_dump() | changed)
    except ValidationError as error:
        raise DefinitionError(f"--threshold: {first_mistake(error)}.") from error


def in_one_run(found: Watch, duration_s: int) -> Watch:
    """The watch with runs so long that one contains all of it, and what is read before and after:
    the first inputs are older than the watch, and clocks of producers may be ahead."""
    first_s = int(time.time()) - BEFORE_S
    last_s = first_s + BEFORE_S + duration_s + AFTER_S
    run_s = next(one for one in count(last_s - first_s) if first_s // one == last_s // one)
    return found.model_copy(update={"run_s": run_s})


def refuse_without_duration(options: Namespace) -> None:
    """Raises DefinitionError if an option needs --duration."""
    given = [name for name, path, _ in report_files(options) if path]
    given += ["--threshold"] if options.threshold else []
    if given:
        raise DefinitionError(f"{given[0]} needs --duration S; the file has thresholds of its own.")


def exit_code(report: Report) -> int:
    """0 only for a valid run without complaints."""
    if not report.valid:
        return EXIT_FAILED
    if any(not row.passed for row in report.thresholds):
        return EXIT_THRESHOLD
    return EXIT_FAILED if watch_complaints(report) else 0
