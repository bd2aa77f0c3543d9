"""The runs of a study at a scale, the notebook of those that are done, and their execution on the
stack of the data folder.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import ValidationError
from rich.console import Console

from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from deploy.local.java import use_java
from deploy.local.parts import GATEWAY, stack_parts
from schemas.model import Stage
from schemas.pipeline import FOR, Pipeline
from schemas.report import Report
from schemas.study import EVERY, Experiment, Limits, Scale, Study, System
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.workload import AUTO, Workload
from services.console.remote_stack import open_stack
from services.console.report.build import build_report
from services.console.run_command import BusyError, RunError, perform
from services.definitions.domains import Domain, checked
from services.definitions.engines import Engine, engine_for
from services.definitions.pipelines import (
    checked_pipeline,
    in_workload,
    load_pipeline,
    merged,
    stages_published,
)
from services.definitions.requests import new_request
from services.definitions.trusted import keep_definitions
from services.definitions.workloads import chosen_workload
from services.readmodel.history import SearchedRate, at_share_of, at_sustainable_share
from services.runtime.clickhouse import store_url
from services.runtime.files import write_whole
from services.runtime.settings import ServiceSettings

MINUTE_S = 60.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment: one system, with one stage or several."""

    experiment: Experiment
    system: System
    domain: Domain
    workload: Workload
    pipeline: Pipeline
    stages: tuple[Stage, ...]
    rate: SearchedRate | None = None  # what its load is a share of

    @property
    def key(self) -> str:
        """Identifies what is measured, so that another workload or other settings for its purpose
        are another run, also for a later version with more settings. Raises DefinitionError."""
        pipeline = in_workload(self.pipeline, self.workload)
        what = {
            "domain": self.domain.spec.name,
            "workload": self.workload.model_dump(mode="json", exclude_defaults=True),
            "pipeline": pipeline.model_dump(mode="json", exclude_defaults=True),
            "stages": self.stages,
        }
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        return f"{self.experiment.name} {self.pipeline.name} {'+'.join(self.stages)} {digest[:16]}"

    @property
    def label(self) -> str:
        """A name for people."""
        return f"{self.experiment.name}: {self.system.name}, {', '.join(self.stages)}"


@dataclass(frozen=True)
class StudyPlan:
    """All runs in order, and their limits. left_out: why systems are not measured, by name."""

    runs: tuple[PlannedRun, ...]
    limits: Limits
    left_out: dict[str, str] = field(default_factory=dict)


def plan_of(study: Study, scale_name: str) -> StudyPlan:
    """The runs of a study at a scale. Raises DefinitionError for an unknown scale and for an
    experiment whose workload does not fit."""
    if scale_name not in study.scales:
        known = ", ".join(study.scales)
        raise DefinitionError(f"--scale: {study.name} has no {scale_name!r}; it has: {known}.")
    pipelines, left_out = _pipelines(study, scale_name)
    runs: list[PlannedRun] = []
    for experiment in study.experiments:
        scale = experiment.scales.get(scale_name)
        if scale is None:
            continue
        domain, workload = _workload(experiment, scale)
        for system in study.systems_of(scale):
            pipeline = pipelines.get(system.name)
            if pipeline is None:
                continue
            pipeline = _changed(pipeline, system.name, _settings_of(experiment.settings, system))
            for stages in _stage_groups(experiment, scale, domain, pipeline):
                of_stage = experiment.stage_settings.get(stages[0], {}) if scale.apart else {}
                own = _changed(pipeline, system.name, _settings_of(of_stage, system))
                runs.append(PlannedRun(experiment, system, domain, workload, own, stages))
    return StudyPlan(tuple(runs), study.limits[scale_name], left_out)


def _pipelines(study: Study, scale_name: str) -> tuple[dict[str, Pipeline], dict[str, str]]:
    of_scale = study.settings.get(scale_name, {})
    result: dict[str, Pipeline] = {}
    left_out: dict[str, str] = {}
    for system in study.systems:
        try:
            result[system.name] = load_pipeline(system.pipeline)
        except DefinitionError as error:
            left_out[system.name] = str(error)
            continue
        settings = merged(of_scale, system.settings)
        result[system.name] = _changed(result[system.name], system.name, settings)
    return result, left_out


def _settings_of(settings: dict[str, dict[str, Any]], system: System) -> dict[str, Any]:
    """The settings of a system among those by system."""
    return merged(settings.get(EVERY, {}), settings.get(system.name, {}))


def _changed(pipeline: Pipeline, system: str, settings: dict[str, Any]) -> Pipeline:
    """The pipeline with the settings that the study has for a system."""
    if not settings:
        return pipeline
    fields = pipeline.model_dump()
    fields[FOR] = fields.pop("purposes")
    try:
        return checked_pipeline(merged(fields, settings))
    except ValidationError as error:
        raise DefinitionError(f"system {system}: {first_mistake(error)}.") from error
    except ValueError as error:
        raise DefinitionError(f"system {system}: {error}.") from error


def _workload(experiment: Experiment, scale: Scale) -> tuple[Domain, Workload]:
    domain, workload = chosen_workload(experiment.workload, experiment.domain or None)
    if workload.scaling is not None:
        raise DefinitionError(
            f"experiment {experiment.name}: {workload.name} is a series of runs, for `run` only."
        )
    shares = (workload.sustainable_share, scale.workload.get("sustainable_share"))
    if experiment.rate_of and not any(shares):
        raise DefinitionError(
            f"experiment {experiment.name}: rate_of needs a sustainable_share in its workload."
        )
    fields = workload.model_dump(exclude_unset=True)
    if fields.get("phases", {}).pop("until_steady", False):
        fields["phases"]["warm_up_s"] = AUTO  # a number in the study overrides it
    fields = merged(fields, scale.workload)
    try:
        return domain, checked(Workload.model_validate(fields), domain)
    except ValidationError as error:
        raise DefinitionError(f"experiment {experiment.name}: {first_mistake(error)}.") from error


def _stage_groups(
    experiment: Experiment, scale: Scale, domain: Domain, pipeline: Pipeline
) -> Iterator[tuple[Stage, ...]]:
    try:
        stages, _against = stages_published(pipeline, domain.spec, experiment.stages)
    except DefinitionError as error:
        raise DefinitionError(f"experiment {experiment.name}: {error}") from error
    if scale.apart:
        yield from ((stage,) for stage in stages)
    elif stages:
        yield stages


@dataclass(frozen=True)
class Note:
    """One finished run. failed: why it has no report; empty if it has one. rate_per_second,
    not_sustained_per_second: result of its search, as of a SearchedRate."""

    run_id: str
    valid: bool
    failed: str = ""
    rate_per_second: float | None = None
    not_sustained_per_second: float | None = None

    @classmethod
    def of(cls, run_id: str, report: Report) -> Self:
        """The note of a run with this report."""
        if not report.valid:
            return cls(run_id, valid=False)
        search = report.search
        return cls(run_id, True, "", search.rate_per_second, search.interval_per_second[1])

    @property
    def rate(self) -> SearchedRate | None:
        """The result of its search, if it has one."""
        if self.rate_per_second is None:
            return None
        return SearchedRate(self.rate_per_second, self.not_sustained_per_second)


@dataclass
class Notebook:
    """Notes by the key of a planned run, oldest first, stored in a file."""

    path: Path
    notes: dict[str, list[Note]] = field(default_factory=dict)

    def of(self, key: str) -> list[Note]:
        """The finished runs of a planned run."""
        return self.notes.get(key, [])

    def is_open(self, key: str, tries: int) -> bool:
        """Whether a run is outstanding: none is valid, and another try is allowed."""
        done = self.of(key)
        return len(done) < tries and not any(note.valid for note in done)

    def chosen(self, key: str) -> Note | None:
        """The run that counts: the valid one, or else the last."""
        done = self.of(key)
        return next((note for note in done if note.valid), done[-1] if done else None)

    def add(self, key: str, note: Note) -> None:
        """Add a run and write the file atomically."""
        self.take(key, note)
        self.write()

    def take(self, key: str, note: Note) -> None:
        """Add a run of which only the caller has the report."""
        self.notes.setdefault(key, []).append(note)

    def forget(self, key: str) -> None:
        """Remove a run so that it is repeated."""
        self.notes.pop(key, None)

    def write(self) -> None:
        """Write the file."""
        text = json.dumps({key: [vars(note) for note in own] for key, own in self.notes.items()})
        write_whole(self.path, text)


def open_notebook(data: Path, study: str, scale: str) -> Notebook:
    """The notebook of a study at a scale; empty if there is none. Raises DefinitionError if the
    file is damaged."""
    path = data / "studies" / f"{study}-{scale}.json"
    if not path.exists():
        return Notebook(path)
    try:
        result: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
        notes = {key: [Note(**each) for each in own] for key, own in result.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DefinitionError(
            f"{path} is not readable; remove it to restart the study: {error}."
        ) from error
    return Notebook(path, notes)


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user interrupted the study; finished runs are recorded."""


def _done(
    run: PlannedRun, settings: ServiceSettings, console: Console, check_stack: Callable[[], None]
) -> Note:
    url = store_url(settings)
    request = new_request(run.workload, [run.pipeline], run.stages, run.domain.spec)
    if not settings.store_url:
        keep_definitions(settings.data, [run.workload], [run.pipeline], [run.domain])
    try:
        if run.rate is None:
            request = at_sustainable_share(request, url)
        else:
            request = at_share_of(request, run.rate)
        progress = perform(request, settings, console, check_stack)
    except BusyError:
        raise
    except (RunError, DefinitionError) as error:
        return Note(request.run_id, valid=False, failed=str(error))
    if progress.interrupted:
        raise Interrupted
    return Note.of(request.run_id, build_report(url, request.run_id))


class RunnableStack(Protocol):
    """A stack that is started for the runs. `check` raises StackError if a part has failed."""

    def up(self, say: Say) -> None:
        """Start it."""

    def check(self) -> None:
        """Raise StackError if it cannot go on."""

    def close(self, say: Say) -> None:
        """Stop what was started."""


@dataclass(frozen=True)
class StudyMeans:
    """What carries out a study: the stack, the installation of engines, and a run."""

    open_stack: Callable[..., RunnableStack] = open_stack
    install: Callable[[list[Engine], ServiceSettings, Say], None] = install_engines
    do: Callable[[PlannedRun, ServiceSettings, Console, Callable[[], None]], Note] = _done


def carry_out(
    plan: StudyPlan,
    notebook: Notebook,
    settings: ServiceSettings,
    console: Console,
    say: Say,
    *,
    means: StudyMeans | None = None,
) -> dict[str, str]:
    """Do the outstanding runs; repeat INVALID ones after all others. Returns why further systems
    are left out. Starts nothing if there is nothing to do. Raises StackError, Interrupted, and
    BusyError if another user's run is in progress."""
    means = means or StudyMeans()
    tries, minutes = plan.limits.tries, plan.limits.minutes
    to_do = [run for run in plan.runs if notebook.is_open(run.key, tries)]
    left_out = {} if settings.store_url else _install(to_do, settings, say, means)
    to_do = [run for run in to_do if run.system.name not in left_out]
    if not to_do:
        return left_out
    more = (GATEWAY,) if any(run.workload.has_gateway for run in to_do) else ()
    stack = means.open_stack(settings, partial(stack_parts, more=more, is_optimised=True))
    if not settings.store_url:
        use_java(settings.jars)
    end_s = time.monotonic() + minutes * MINUTE_S

    def do(run: PlannedRun) -> Note:
        if searched := run.experiment.rate_of:
            rate = _rate_found(run.system, searched, plan, notebook)
            if rate is None:
                why = f"The experiment {searched} gave no rate for {run.system.name}."
                return Note("", valid=False, failed=why)
            run = replace(run, rate=rate)
        return means.do(run, settings, console, stack.check)

    try:
        stack.up(say)
        while to_do:
            for number, run in enumerate(to_do, start=1):
                if time.monotonic() >= end_s:
                    say(f"{minutes:g} minutes are over; the same command resumes.")
                    return left_out
                place = f"[{number}/{len(to_do)}] {run.label}"
                say(place)
                note = do(run)
                notebook.add(run.key, note)
                say(f"{place}: {_told(note)}")
            to_do = [run for run in to_do if notebook.is_open(run.key, tries)]
    finally:
        stack.close(say)
    return left_out


def _rate_found(
    system: System, experiment: str, plan: StudyPlan, notebook: Notebook
) -> SearchedRate | None:
    """The rate that the search of an experiment has for a system, or None."""
    notes = (
        notebook.chosen(run.key)
        for run in plan.runs
        if (run.experiment.name, run.system.name) == (experiment, system.name)
    )
    rates = (note.rate for note in notes if note is not None)
    return next((rate for rate in rates if rate is not None), None)


def _install(
    runs: list[PlannedRun], settings: ServiceSettings, say: Say, means: StudyMeans
) -> dict[str, str]:
    """Install the engines of the runs; returns why systems cannot be measured."""
    left_out: dict[str, str] = {}
    for run in {run.system.name: run for run in runs}.values():
        try:
            means.install([engine_for(run.pipeline)], settings, say)
        except InstallError as error:
            left_out[run.system.name] = f"{error}."
            say(f"{run.system.name} is left out: {error}.")
    return left_out


def _told(note: Note) -> str:
    if note.failed:
        return note.failed
    return f"run {note.run_id}, {'valid' if note.valid else 'INVALID'}"
