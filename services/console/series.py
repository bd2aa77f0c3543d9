"""What the verb `run` does: one run, or several, from the options to files and exit code.

`Baseline` is that of `run --baseline`: an earlier report or run, for thresholds and for comparison.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from pydantic import ValidationError
from rich.console import Console

from analysis.comparability import apart, identity_of, outcome_with_doubts
from analysis.interleaving import LEAST_PAIRS
from analysis.thresholds import ended_by_threshold, resolved
from deploy.local.archiving import make_archives
from deploy.local.broker import ARCHIVE_USE
from deploy.local.engines import install_engines
from deploy.local.java import use_java
from deploy.local.parts import GATEWAY, stack_parts
from deploy.local.stack import Stack
from schemas.protocol import (
    Interleaving,
    Pipeline,
    RunRequest,
    Stage,
    Workload,
    parse_stages,
)
from schemas.report import Report, SweepPoint
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError, first_mistake
from services.console.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_THRESHOLD
from services.console.choosing import (
    MEASURE_S,
    ChosenRun,
    Overrides,
    check_quiet,
    chosen_pipelines,
    cited,
    cited_pipelines,
    cited_workload,
    long_enough,
    look_into_files,
    parts_of,
    runs_of,
    scaling_of,
    settings_of,
    swept,
    with_overrides,
)
from services.console.files import report_files, write_file
from services.console.progress import RunProgress
from services.console.remote_stack import RemoteStack, dashboards, open_stack, run_page
from services.console.report.build import build_whole_report
from services.console.report.several import conclusions_of
from services.console.report.terminal import show_report
from services.console.report.words import is_clean, verdict
from services.console.run_command import FollowedRun, RunError, ask, perform, publish
from services.console.terminal import teller
from services.definitions.domains import Domain, checked
from services.definitions.engines import engine_for
from services.definitions.pipelines import load_pipelines
from services.definitions.requests import new_request, not_published
from services.definitions.trusted import keep_definitions
from services.definitions.workloads import chosen_workload
from services.readmodel.history import at_sustainable_share
from services.runtime.clickhouse import StoreUrl, store_url
from services.runtime.settings import ServiceSettings

MOST_REPEATS = 100


class Baseline:
    """A JSON report file or the id of a run. url: of the store with that run."""

    def __init__(self, given: str, url: str) -> None:
        self.given = given
        self.is_file = bool(Path(given).suffix) or "/" in given or Path(given).exists()
        self._url = url

    def check(self) -> None:
        """Refuse a wrong file before anything starts. A run is only in the store that starts."""
        if not self.given:
            raise DefinitionError("--baseline: the name of a file or the id of a run is missing.")
        if self.is_file:
            _ = self.report

    @cached_property
    def report(self) -> Report:
        """The report, read once. Raises DefinitionError, and QueryError for an unknown run."""
        result = self._read() if self.is_file else build_whole_report(self._url, self.given)
        if not result.valid:
            raise DefinitionError(f"--baseline: the run in {self.given} is not valid.")
        return result

    def _read(self) -> Report:
        try:
            return Report.model_validate_json(Path(self.given).read_bytes())
        except OSError as error:
            raise DefinitionError(
                f"--baseline: {self.given} cannot be read: {error.strerror}."
            ) from error
        except ValidationError as error:
            raise DefinitionError(
                f"--baseline: {self.given} is not a JSON report: {first_mistake(error)}."
            ) from error


def check_baseline(workload: Workload, baseline: Baseline | None) -> None:
    """Raise DefinitionError for a threshold on a baseline that the command does not name."""
    for each in map(parse_threshold, workload.thresholds):
        if each.of_baseline and baseline is None:
            raise DefinitionError(f"The threshold {each.text!r} needs --baseline.")


def differences(request: RunRequest, baseline: Report) -> list[str]:
    """Why the run of a request will not be comparable with a baseline. The rate of a share of the
    sustainable one is not known yet."""
    identity = identity_of(json.loads(request.model_dump_json()))
    other = baseline.identity
    if request.workload.sustainable_share is not None:
        identity["rate"] = other.get("rate", "")
    return apart(identity, other)


def with_baseline(
    workload: Workload,
    measured: Mapping[str, Collection[str]],
    baseline: Baseline | None,
    request: RunRequest | None = None,
) -> Workload:
    """The workload with the baseline's figures substituted into its thresholds. measured: the
    stages of each pipeline. request: of a run; thresholds on a baseline that is not comparable with
    it get no number, so they fail. Raises DefinitionError and QueryError."""
    thresholds = [parse_threshold(line) for line in workload.thresholds]
    report = baseline.report if baseline else None
    if not any(threshold.of_baseline for threshold in thresholds):
        return workload
    given = baseline.given if baseline else ""
    try:
        reasons = differences(request, report) if request and report else ()
        figures = report.figures if report else None
        result = resolved(thresholds, figures, given, measured, reasons)
    except ValueError as error:
        raise DefinitionError(f"--threshold: {error}.") from error
    return workload.model_copy(update={"thresholds": tuple(each.text for each in result)})


def against_baseline(report: Report, baseline: Baseline, required: bool = False) -> Report:
    """The report with its comparison with the baseline. required: the command demands that it
    decides."""
    from analysis.baseline import compared  # slow: imports numpy

    comparison = compared(report, baseline.report, baseline.given)
    comparison = comparison.model_copy(update={"required": required})
    return report.model_copy(update={"baseline": comparison})


@dataclass(frozen=True)
class RunOptions(Overrides):
    """The options of `run`: what they change of the workload, and the rest. None: not given."""

    workload: str = "latency"
    domain: str | None = None
    pipeline: str | None = None
    stages: str | None = None
    settings: Sequence[str] = ()
    workers: str | None = None
    repeat: int | None = None
    profile: Literal["citation"] | None = None
    interleave: bool = False
    baseline: str | None = None
    require_comparison: bool = False
    report: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    benchmark: Path | None = None


def summarise(reports: list[Report], profile: str | None) -> Report:
    """The report of repeated runs, cited if a profile says so."""
    from analysis import repetition  # slow: imports numpy

    report = repetition.summarise(reports)
    return cited(report, reports) if profile else report


@dataclass(frozen=True)
class Means:
    """What `run` does its work with: the stack, the runs and their reports. A test has others."""

    open_stack: Callable[..., Stack | RemoteStack] = open_stack
    ask: Callable[[RunRequest, ServiceSettings], FollowedRun] = ask
    at_share: Callable[[RunRequest, StoreUrl], RunRequest] = at_sustainable_share
    perform: Callable[..., RunProgress] = perform
    build_report: Callable[[StoreUrl, str], Report] = build_whole_report
    summarise: Callable[[list[Report], str | None], Report] = summarise
    show_report: Callable[[Console, Report], None] = show_report
    publish: Callable[..., None] = publish
    make_archives: Callable[..., None] = make_archives


MEANS = Means()


@dataclass(frozen=True)
class Wanted:
    """What to measure. ask: creates the request of a run from a workload and pipelines. repeat:
    number of rounds. baseline: what thresholds refer to and the report is compared with. measured:
    the stages of each pipeline, by the name that the command gave it. sweep: the run of each
    choice of the pipelines' settings."""

    options: RunOptions
    workload: Workload
    pipelines: tuple[Pipeline, ...]
    domain: Domain
    ask: Callable[[Workload, tuple[Pipeline, ...]], RunRequest]
    repeat: int = 1
    baseline: Baseline | None = None
    means: Means = MEANS
    measured: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict)
    sweep: tuple[ChosenRun, ...] = ()

    @property
    def is_sweep(self) -> bool:
        """Whether settings of the pipelines have several values."""
        return len(self.sweep) > 1

    @property
    def needs_results(self) -> bool:
        """Whether its request depends on earlier results, and so on the store."""
        thresholds = map(parse_threshold, self.workload.thresholds)
        at_share = self.workload.sustainable_share is not None
        is_run = self.baseline is not None and not self.baseline.is_file
        return at_share or is_run or any(threshold.of_baseline for threshold in thresholds)

    @property
    def parts(self) -> tuple[ChosenRun, ...]:
        """The runs of one round."""
        if self.is_sweep:
            return tuple(replace(part, workload=self.workload) for part in self.sweep)
        return parts_of(self.workload, self.pipelines)

    def keep(self, data: Path) -> None:
        """Record what was read from files, so that services trust it."""
        measured = [pipeline for part in self.parts for pipeline in part.pipelines]
        keep_definitions(data, [self.workload], measured, [self.domain])

    def request(self, reports: Sequence[Report]) -> RunRequest:
        """The request of the next run, given the reports of those before it."""
        part = self.parts[len(reports) % len(self.parts)]
        request = part.of_series(self.ask(part.workload, part.pipelines), reports)
        return request.model_copy(update={"profile": self.options.profile or ""})


def run(
    options: RunOptions, settings: ServiceSettings, console: Console, means: Means = MEANS
) -> int:
    """One run from start to report; 0 only if it is valid and the ledger clean. If one of several
    runs cannot be done, those before it are reported first."""
    wanted = replace(_wanted(options, store_url(settings)), means=means)
    say = teller(console)
    if not settings.store_url:
        use_java(settings.jars)  # its version is part of the request
    # Before anything starts: a request may be refused.
    plans = [wanted.ask(part.workload, part.pipelines) for part in wanted.parts]
    planned = plans[0]
    own = zip(wanted.pipelines, planned.pipelines, strict=True)
    measured = {each.name: planned.stages_of(named) for each, named in own}
    wanted = replace(wanted, measured=measured)
    look_into_files(planned, wanted.domain, settings, say)
    for sentence in not_published(planned):
        say(sentence)
    if planned.interleaved is not None:
        wanted = _in_turns(wanted, planned.interleaved, say)
    more = (GATEWAY,) if wanted.workload.has_gateway else ()
    parts = partial(stack_parts, more=more, is_optimised=wanted.workload.is_optimised)
    stack = means.open_stack(settings, parts)
    _look_whether_quiet(options, stack)
    reports: list[Report] = []
    if not settings.store_url:
        needed = (engine_for(pipeline) for each in plans for pipeline in each.pipelines)
        install_engines(needed, settings, say)
    try:
        try:
            interrupted = _measure(wanted, settings, console, stack, reports)
        except BaseException as error:
            before = [_tell(wanted, reports, console)] if reports else []
            if isinstance(error, RunError):
                with suppress(RunError):  # the first error counts
                    _publish(before, settings, stack, means)
            raise
        report = _tell(wanted, reports, console)
        _publish([report], settings, stack, means)
        if stack.attached:  # otherwise the dashboards end with the stack
            say(f"look at it at {run_page(settings, report.run_id)}")
    finally:
        stack.close(say)
    if interrupted:
        return EXIT_INTERRUPTED
    means.make_archives(settings.jars, say, but=(ARCHIVE_USE,) if stack.attached else ())
    return exit_code(reports, report)


def _in_turns(wanted: Wanted, turns: Interleaving, say: Callable[[str], None]) -> Wanted:
    """The same, measured for enough blocks, unless the command says how long."""
    if wanted.options.duration is None:
        wanted = replace(wanted, workload=long_enough(wanted.workload, turns))
    measured_s = wanted.workload.phases.measure_s
    say(f"in turns, blocks of {turns.block_s} s: {measured_s} s are measured")
    least_s = 2 * turns.block_s * LEAST_PAIRS
    if measured_s < least_s:
        say(f"too few blocks for a comparison; it needs --duration {least_s} or longer")
    return wanted


def _wanted(options: RunOptions, url: str) -> Wanted:
    """The options as a value. url: of the store. Raises DefinitionError."""
    domain, workload = chosen_workload(options.workload, options.domain)
    chosen = with_overrides(workload, options)
    workload = scaling_of(checked(chosen, domain), options.workers)
    pipelines = load_pipelines(chosen_pipelines(options.pipeline, workload))
    sweep = swept(workload, pipelines, settings_of(options.settings))
    pipelines = sweep[0].pipelines
    if len(sweep) > 1:
        _check_sweep(options, workload)
    workload, pipelines, repeat = _profiled(options, workload, pipelines)
    stages = _stages(options, domain)
    if not 1 <= repeat <= MOST_REPEATS:
        raise DefinitionError(f"--repeat must be from 1 to {MOST_REPEATS}.")
    baseline = Baseline(options.baseline, url) if options.baseline is not None else None
    if baseline is not None:
        baseline.check()
    check_baseline(workload, baseline)
    if options.require_comparison and baseline is None:
        raise DefinitionError("--require-comparison needs --baseline.")
    request = partial(new_request, stages=stages, domain=domain.spec, interleave=options.interleave)
    return Wanted(options, workload, pipelines, domain, request, repeat, baseline, sweep=sweep)


def _check_sweep(options: RunOptions, workload: Workload) -> None:
    """Refuse what a command with several values of a setting cannot have. Raises
    DefinitionError."""
    having = {
        "--interleave": options.interleave,
        "--baseline": options.baseline is not None,
        "--profile": options.profile is not None,
        "--workers": workload.scaling is not None,
        "--junit": options.junit is not None,
        "--benchmark": options.benchmark is not None,
    }
    if refused := [name for name, is_given in having.items() if is_given]:
        raise DefinitionError(f"--set with several values is not for {refused[0]}.")


def _measure(
    wanted: Wanted,
    settings: ServiceSettings,
    console: Console,
    stack: Stack | RemoteStack,
    reports: list[Report],
) -> bool:
    """Start the stack if needed, carry out the runs and append their reports; returns whether that
    was interrupted. The first run begins before every part is ready if it needs no results."""
    say, url, means = teller(console), store_url(settings), wanted.means
    begun: list[tuple[RunRequest, FollowedRun]] = []

    def begin() -> None:
        wanted.keep(settings.data)
        request = wanted.request(reports)
        begun.append((request, means.ask(request, settings)))

    stack.up(say, None if wanted.needs_results else begin)
    if not settings.store_url and not begun:
        wanted.keep(settings.data)
    first = begun[0][0] if begun else wanted.request(reports)
    workload = with_baseline(wanted.workload, wanted.measured, wanted.baseline, first)
    wanted = replace(wanted, workload=workload)
    say(f"watch it at {dashboards(settings)}d/tidegauge-live")
    planned_runs, interrupted = wanted.repeat * len(wanted.parts), False
    while len(reports) < planned_runs and not interrupted:
        asked = None
        if begun:
            request, asked = begun.pop()
        else:
            request = means.at_share(wanted.request(reports), url)
        done = means.perform(request, settings, console, stack.check, asked)
        interrupted = done.interrupted
        reports.append(means.build_report(url, request.run_id))
        if planned_runs > 1:
            say(f"run {len(reports)} of {planned_runs}: {verdict(reports[-1])[0]}")
        if ended_by_threshold(reports[-1]):
            break
    return interrupted


def _stages(options: RunOptions, domain: Domain) -> tuple[Stage, ...]:
    """The stages named by --stages. Raises DefinitionError."""
    try:
        if options.stages is None:
            return ()
        return parse_stages(options.stages, domain.spec.stage_names)
    except ValueError as error:
        raise DefinitionError(f"--stages: {error}.") from error


def _profiled(
    options: RunOptions, workload: Workload, pipelines: tuple[Pipeline, ...]
) -> tuple[Workload, tuple[Pipeline, ...], int]:
    """The workload, pipelines and number of runs under a profile. Raises DefinitionError."""
    if not options.profile:
        return workload, pipelines, 1 if options.repeat is None else options.repeat
    if workload.scaling is not None:
        raise DefinitionError("--profile is not for a series with several numbers of workers.")
    if options.warm_up is not None:
        raise DefinitionError("--profile and --warm-up: the profile sets the warm-up.")
    if options.duration is not None and options.duration < MEASURE_S:
        raise DefinitionError(f"--profile measures at least {MEASURE_S} s; --duration is shorter.")
    return cited_workload(workload), cited_pipelines(pipelines), runs_of(options.repeat)


def _look_whether_quiet(options: RunOptions, stack: Stack | RemoteStack) -> None:
    """Check that the machine is quiet, if a profile requires it, before we start anything. Raises
    DefinitionError."""
    if options.profile and not stack.status().running:
        check_quiet()


def _publish(
    reports: Sequence[Report],
    settings: ServiceSettings,
    stack: Stack | RemoteStack,
    means: Means,
) -> None:
    """Publish what the reports say about several runs. Raises RunError."""
    conclusions = [conclusion for report in reports for conclusion in conclusions_of(report)]
    means.publish(conclusions, settings, stack.check)


def exit_code(reports: list[Report], shown: Report) -> int:
    """A failed threshold has priority if its run is valid or was ended by it. So has a figure that
    is worse than the baseline, or that was not compared with it as demanded. shown: the report that
    was printed."""
    failed = [report for report in reports if any(not row.passed for row in report.thresholds)]
    if any(map(ended_by_threshold, reports)) or any(each.valid for each in failed):
        return EXIT_THRESHOLD
    compared = shown.baseline
    if compared and (compared.passed is False or (compared.passed is None and compared.required)):
        return EXIT_THRESHOLD
    return 0 if all(report.valid and is_clean(report) for report in reports) else EXIT_FAILED


def _swept(wanted: Wanted, reports: list[Report]) -> Report:
    """The last report with the figures of each choice of settings, of several runs those of their
    median run; it is valid if all runs are, and has the thresholds of all."""
    points = []
    for number, part in enumerate(wanted.sweep):
        own = reports[number :: len(wanted.sweep)]
        if own:
            shown = wanted.means.summarise(own, None) if len(own) > 1 else own[0]
            points.append(
                SweepPoint(
                    values=dict(part.values),
                    run_id=shown.run_id,
                    runs=len(own),
                    valid=sum(report.valid for report in own),
                    pipelines=shown.pipelines,
                    outcomes=list(map(outcome_with_doubts, own)),
                )
            )
    of_all = {
        "sweep": points,
        "valid": all(report.valid for report in reports),
        "invalid_reasons": [
            f"{report.run_id}: {reason}" for report in reports for reason in report.invalid_reasons
        ],
        "thresholds": [row for report in reports for row in report.thresholds],
    }
    return reports[-1].model_copy(update=of_all)


def _tell(wanted: Wanted, reports: list[Report], console: Console) -> Report:
    """Print the report, and write the requested files; returns the report."""
    options, means = wanted.options, wanted.means
    if wanted.is_sweep:
        report = _swept(wanted, reports)
    else:
        # The last report of a series contains all its runs.
        is_repeated = wanted.repeat > 1 and reports[-1].scalability is None
        report = means.summarise(reports, options.profile) if is_repeated else reports[-1]
    if wanted.baseline is not None:
        report = against_baseline(report, wanted.baseline, options.require_comparison)
    means.show_report(console, report)
    for option, path, write in report_files(options):
        if path is not None:
            write_file(option, path, write(report))
    return report
