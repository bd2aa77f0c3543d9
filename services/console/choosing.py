"""What a command runs: the workload with the command line's options, the pipelines, and the runs of
a series with increasing numbers of workers.

Each number of workers is a run preceded by a search, with the pipeline under a name of its own and
topics with as many partitions as the workload says.

`run --profile citation` gives figures to be cited, or a refusal that names the violated rule.
Time-saving settings are disabled: the warm-up lasts until every stage is steady, JVMs compile as
they do by default and collect garbage with G1, the broker runs with the settings of a permanent
one. The machine must be quiet before and during the runs, and at least LEAST_RUNS runs must be
valid.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from schemas.load import PERIODIC
from schemas.protocol import Interleaving, Pipeline, RunRequest, Workload
from schemas.report import Report
from schemas.search import Scaled, Scaling
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError, first_mistake, first_sentence
from schemas.workload import KillSignal, KillTarget
from services.definitions.domains import DOMAINS_DIR, Domain
from services.definitions.engines import load_engine
from services.definitions.pipelines import DEFAULT_PIPELINE, with_settings, with_workers
from services.definitions.workloads import changed
from services.runtime.settings import ServiceSettings

INTERLEAVED_PAIRS = 20
FLOOR_S = 10
_OPTIONS = {
    "thresholds": "--threshold",
    "rate_per_second": "--rate",
    "measure_s": "--duration",
    "warm_up_s": "--warm-up",
}
LEAST_RUNS = 5
WARM_UP_S, MEASURE_S = 600, 120  # maximum and minimum
OTHERS_SHARE, STEAL_SHARE = 0.05, 0.02
LOOK_S = 5.0
MOST_CHOICES = 100
G1 = "-XX:+UseG1GC"
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


@dataclass(frozen=True)
class Overrides:
    """What a command changes of a workload; None changes nothing. rate: records per second.
    duration: of the measured phase, seconds. warm_up: seconds, or `auto`. thresholds: further
    ones."""

    rate: float | None = None
    duration: int | None = None
    warm_up: int | str | None = None
    scale: float | None = None
    input: Path | None = None
    time_unit: str | None = None
    format: str | None = None
    processing_time: bool = False
    transport: str | None = None
    kill: KillTarget | None = None
    signal: KillSignal | None = None
    thresholds: Sequence[str] = ()
    floor: bool = False


def with_overrides(workload: Workload, given: Overrides) -> Workload:
    """The workload as the command changes it. Raises DefinitionError."""
    if given.rate is not None and not 0 < given.rate < float("inf"):
        raise DefinitionError("--rate must be greater than 0 and finite.")
    if given.rate is not None and not workload.load.base_rate_per_second:
        raise DefinitionError(
            f"--rate: the load of {workload.name} has no single rate; use --scale, or a "
            "workload of your own."
        )
    if given.signal is not None and given.kill is None:
        raise DefinitionError("--signal needs --kill.")
    if given.input is not None and not given.input.exists():
        raise DefinitionError(f"--input: {given.input} is not a file or folder.")
    try:
        result = changed(workload, given.rate, given.duration, given.warm_up, given.scale)
        fields = result.model_dump()
        if given.floor and not result.floor_s:
            fields["floor_s"] = FLOOR_S
        if given.format is not None:
            fields["content"]["format"] = given.format
        if given.input is not None:
            fields["content"] |= {"source": "file", "path": str(given.input.resolve())}
        if given.time_unit is not None:
            fields["content"]["time_unit"] = given.time_unit
        fields["processing_time"] = given.processing_time or result.processing_time
        if given.transport is not None:
            fields["transport"] = given.transport
        if given.kill is not None:
            at_s = result.kills[0].at_s if result.kills else result.phases.measure_s // 3
            how = {} if given.signal is None else {"signal": given.signal}
            fields["kills"] = [{"target": given.kill, "at_s": at_s, **how}]
        fields["thresholds"] = [*result.thresholds, *given.thresholds]
        return Workload.model_validate(fields)
    except ValidationError as error:
        raise DefinitionError(f"workload {workload.name}: {_mistake(error)}.") from error


def _mistake(error: ValidationError) -> str:
    """The first error, with the option of its field if there is one."""
    first = error.errors()[0]
    for name in (each for each in first["loc"] if each in _OPTIONS):
        return f"{_OPTIONS[name]}: {first_sentence(error)}"
    return first_mistake(error)


def long_enough(workload: Workload, turns: Interleaving) -> Workload:
    """The workload, measured for at least INTERLEAVED_PAIRS pairs of blocks."""
    least_s = 2 * INTERLEAVED_PAIRS * turns.block_s
    phases = workload.phases
    longer = phases.model_copy(update={"measure_s": max(least_s, phases.measure_s)})
    return workload.model_copy(update={"phases": longer})


def chosen_pipelines(given: str | None, workload: Workload) -> Sequence[str]:
    """Names of the pipelines: those given, or else the workload's, or else the default."""
    if given is not None:
        return tuple(dict.fromkeys(given.split(",")))
    return workload.pipelines or (DEFAULT_PIPELINE,)


def settings_of(given: Sequence[str]) -> list[dict[str, Any]]:
    """Every choice of the settings of --set, by name: one, unless a setting has several values,
    separated by commas. A value is written as in TOML, or is plain text. Raises DefinitionError."""
    result: dict[str, list[Any]] = {}
    for each in given:
        name, equals, text = (part.strip() for part in each.partition("="))
        if not name or not equals:
            raise DefinitionError(f"--set: {each!r} is not NAME=VALUE.")
        if name in result:
            raise DefinitionError(f"--set: {name} is set twice.")
        values = [_value_of(text)]
        if values == [text]:
            values = [_value_of(part.strip()) for part in text.split(",")]
        if "" in values[1:]:
            raise DefinitionError(f"--set: a value of {name} is missing in {text!r}.")
        result[name] = values
    number = prod(map(len, result.values()))
    if number > MOST_CHOICES:
        raise DefinitionError(
            f"--set: {number} choices of settings; at most {MOST_CHOICES} are run."
        )
    return [dict(zip(result, values, strict=True)) for values in product(*result.values())]


def _value_of(text: str) -> Any:
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    return text


def look_into_files(
    request: RunRequest, domain: Domain, settings: ServiceSettings, say: Callable[[str], None]
) -> None:
    """Read the files of a request in a process of the generator, as a run would, and say how many
    rows it would leave out. Raises DefinitionError if it could not use them."""
    content = request.workload.content
    is_own = bool(domain.recording) and domain.folder.parent != DOMAINS_DIR.resolve()
    if not content.path and not is_own:
        return
    given = {"request": json.loads(request.model_dump_json()), "domain": domain.place}
    done = subprocess.run(
        [sys.executable, "-m", "services.generator.look"],
        env=os.environ | settings.child_variables,
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DefinitionError("The files of the run could not be looked into.")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["refused"]:
        raise DefinitionError(f"{answer['refused']}.")
    if answer["bad_rows"]:
        say(f"rows left out, as dead letters: {answer['bad_rows']}; the first is {answer['first']}")


@dataclass(frozen=True)
class ChosenRun:
    """One run of a series; a command without a series has a single part.

    scaled: without the series name, which is only known once its first run is requested. values:
    of the settings by which its pipelines differ from those of other parts.
    """

    workload: Workload
    pipelines: tuple[Pipeline, ...]
    scaled: Scaled | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def of_series(self, request: RunRequest, before: Sequence[Report]) -> RunRequest:
        """The request of this part, given the reports of those before it: its search starts at the
        last rate found."""
        if self.scaled is None:
            return request
        first = before[0].scalability if before else None
        series = first.series if first else request.run_id
        rates = [report.search.rate_per_second for report in before]
        rate = next((rate for rate in reversed(rates) if rate), None)
        changes: dict[str, Any] = {"scaled": self.scaled.model_copy(update={"series": series})}
        if rate is not None:
            changes["workload"] = request.workload.at_rate(float(f"{rate:.4g}"))
        return request.model_copy(update=changes)


def scaling_of(workload: Workload, given: str | None) -> Workload:
    """The workload with the numbers of workers from --workers. Raises DefinitionError."""
    if given is None:
        return workload
    if workload.search is None:
        raise DefinitionError(
            f"--workers needs a workload with a search, such as scalability; {workload.name} has "
            "none."
        )
    try:
        workers = tuple(int(each) for each in given.split(","))
        scaling = workload.scaling or Scaling()
        scaling = Scaling(workers=workers, partitions_per_worker=scaling.partitions_per_worker)
    except ValueError as error:
        raise DefinitionError(
            f"--workers must be rising whole numbers such as 1,2,4, not {given!r}."
        ) from error
    return workload.model_copy(update={"scaling": scaling})


def swept(
    workload: Workload, pipelines: tuple[Pipeline, ...], choices: Sequence[Mapping[str, Any]]
) -> tuple[ChosenRun, ...]:
    """A run for each choice of settings. Raises DefinitionError for what a pipeline does not
    have."""
    return tuple(
        ChosenRun(
            workload,
            tuple(with_settings(each, values) if values else each for each in pipelines),
            values=values,
        )
        for values in choices
    )


def parts_of(workload: Workload, pipelines: tuple[Pipeline, ...]) -> tuple[ChosenRun, ...]:
    """The runs of a command, in order. Raises DefinitionError if the pipeline does not support a
    number of workers."""
    if workload.scaling is None:
        return (ChosenRun(workload, pipelines),)
    if len(pipelines) != 1:
        raise DefinitionError("--workers needs one pipeline: --pipeline A.")
    parts = [_part(workload, pipelines[0], workers) for workers in workload.scaling.workers]
    names = [each.pipelines[0].name for each in parts]
    return tuple(_with_thresholds(part, pipelines[0].name, names) for part in parts)


def _with_thresholds(part: ChosenRun, pipeline: str, names: Sequence[str]) -> ChosenRun:
    """The part with its thresholds: those for the series' pipeline or for its own, without those
    for the others of the series. names: of the pipelines of all parts."""
    own = part.pipelines[0].name
    result = []
    for each in map(parse_threshold, part.workload.thresholds):
        if each.pipeline == pipeline:
            result.append(each.text.replace(pipeline, own, 1))
        elif each.pipeline == own or each.pipeline not in names:
            result.append(each.text)
    return replace(part, workload=part.workload.model_copy(update={"thresholds": tuple(result)}))


def _part(workload: Workload, pipeline: Pipeline, workers: int) -> ChosenRun:
    assert workload.scaling is not None
    partitions = workload.partitions or workers * workload.scaling.partitions_per_worker
    try:
        scaled = with_workers(pipeline, workers, f"{pipeline.name}-w{workers}-p{partitions}")
    except DefinitionError as error:
        raise DefinitionError(f"--workers: {error}") from error
    return ChosenRun(
        workload.model_copy(update={"partitions": partitions, "scaling": None}),
        (scaled,),
        Scaled(series="", pipeline=pipeline.name, workers=workers, partitions=partitions),
    )


def runs_of(asked: int | None) -> int:
    """Number of runs. Raises DefinitionError if it is too low."""
    if asked is not None and asked < LEAST_RUNS:
        raise DefinitionError(f"--profile citation: --repeat must be at least {LEAST_RUNS}.")
    return asked or LEAST_RUNS


def cited_workload(workload: Workload) -> Workload:
    """The workload with a long warm-up and strict rules. Raises DefinitionError."""
    if not workload.load.IS_PERIODIC or workload.pipelines_start_s:
        raise DefinitionError(
            "--profile citation: the load must be the same at any time "
            f"({', '.join(PERIODIC)}), so that it can be steady."
        )
    phases = workload.phases
    longer = {"warm_up_s": WARM_UP_S, "until_steady": True}
    longer["measure_s"] = max(MEASURE_S, phases.measure_s)
    rules = workload.validity
    strict = {
        "must_be_steady": True,
        "must_be_undisturbed": True,
        "max_others_share": _stricter(OTHERS_SHARE, rules.max_others_share),
        "max_steal_share": _stricter(STEAL_SHARE, rules.max_steal_share),
    }
    changes = {
        "phases": phases.model_copy(update=longer),
        "validity": rules.model_copy(update=strict),
    }
    return Workload.model_validate(workload.model_copy(update=changes).model_dump())


def _stricter(most: float, own: float | None) -> float:
    return most if own is None else min(most, own)


def cited_pipelines(pipelines: Sequence[Pipeline]) -> tuple[Pipeline, ...]:
    """The pipelines without time-saving JVM start options, where these can be set. Raises
    DefinitionError if one chooses another garbage collector."""
    return tuple(map(_cited, pipelines))


def _cited(pipeline: Pipeline) -> Pipeline:
    chosen = COLLECTOR.findall(json.dumps(pipeline.settings))
    if other := next((each for each in chosen if each != G1), ""):
        raise DefinitionError(
            f"--profile citation: JVMs collect garbage with G1, but the pipeline {pipeline.name} "
            f"has the option {other}."
        )
    settings = load_engine(pipeline.engine).spec.settings
    changes: dict[str, Any] = {}
    if "quick_compiler" in settings:
        changes["quick_compiler"] = False
    if "jvm_options" in settings:
        options = pipeline.settings.get("jvm_options", ())
        given = options if isinstance(options, tuple) else ()
        changes["jvm_options"] = given if G1 in given else (*given, G1)
    return pipeline.model_copy(update=changes)


def check_quiet(look_s: float = LOOK_S) -> None:
    """Raises DefinitionError if the machine is not quiet now, before anything is started."""
    used, stolen = _shares(look_s)
    if used > OTHERS_SHARE or stolen > STEAL_SHARE:
        raise DefinitionError(
            f"--profile citation: the machine is not quiet: processes used {used:.0%} of it and "
            f"its host took {stolen:.0%} in {look_s:g} s, allowed {OTHERS_SHARE:.0%} and "
            f"{STEAL_SHARE:.0%}."
        )


def _shares(look_s: float) -> tuple[float, float]:
    before, began_s = psutil.cpu_times(), time.monotonic()
    psutil.cpu_percent(interval=look_s)
    after = psutil.cpu_times()
    whole_s = (time.monotonic() - began_s) * (psutil.cpu_count() or 1)
    idle_s = after.idle - before.idle + getattr(after, "iowait", 0) - getattr(before, "iowait", 0)
    stolen_s = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    return max(0.0, whole_s - idle_s - stolen_s) / whole_s, stolen_s / whole_s


def cited(report: Report, reports: Sequence[Report]) -> Report:
    """The summary of all runs: VALID only if enough of them are and every ledger is clean."""
    good = [each for each in reports if each.valid and each.conclusion.clean]
    if len(good) >= LEAST_RUNS and len(good) == len(reports):
        return report
    reasons = list(dict.fromkeys(reason for each in reports for reason in each.invalid_reasons))
    first = (
        f"Not to be cited: {len(good)} of {len(reports)} runs are valid and clean; all must be, "
        f"and at least {LEAST_RUNS}."
    )
    changes = {"valid": False, "invalid_reasons": [first, *reasons]}
    return report.model_copy(update=changes)
