"""Loads workloads, pipelines, suites and studies from TOML: `workloads/NAME.toml` and so on.

Load and pipeline are independent. A suite is a list of pairs of them. So is a study, which also
ends and has a page. A file that is not TOML or does not fit its model raises DefinitionError, whose
text is one sentence with the file, the field and the allowed values.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.protocol import Pipeline, Workload
from schemas.study import Study
from schemas.suite import Step, Suite, SuiteFile, SuiteItem
from schemas.threshold import EVERY_STAGE, INPUT, PIPELINE, parse_threshold
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from services.runtime.engines import checked_pipeline, stages_published
from services.runtime.settings import ROOT
from services.runtime.toml_files import parse_toml

__all__ = [
    "DEFAULT_PIPELINE",
    "EXTERNAL",
    "PIPELINES_DIR",
    "STUDIES_DIR",
    "SUITES_DIR",
    "WORKLOADS_DIR",
    "DefinitionError",
    "changed",
    "check_thresholds",
    "defined_in",
    "load_pipeline",
    "load_pipelines",
    "load_study",
    "load_suite",
    "load_workload",
    "names",
    "unknown",
]
WORKLOADS_DIR = ROOT / "workloads"
PIPELINES_DIR = ROOT / "pipelines"
SUITES_DIR = ROOT / "suites"
STUDIES_DIR = ROOT / "studies"
EXTERNAL = "external:"
DEFAULT_PIPELINE = "spark-realtime"  # if no command, suite or workload names one

ReadT = TypeVar("ReadT")


def names(directory: Path) -> tuple[str, ...]:
    """Names defined in a directory, sorted."""
    return tuple(sorted(path.stem for path in directory.glob("*.toml")))


def load_workload(name: str, directory: Path = WORKLOADS_DIR) -> Workload:
    """One workload by name, or by the path of a TOML file. Raises DefinitionError."""
    folder = _path(name, directory).parent
    return _load("workload", lambda fields: _workload(fields, folder), name, directory)


def load_pipeline(name: str, directory: Path = PIPELINES_DIR) -> Pipeline:
    """One pipeline by name, or by the path of a TOML file; `external:NAME` needs no file.

    `external:NAME` is a running program that writes `output.NAME.<stage>`. Raises DefinitionError.
    """
    if name.startswith(EXTERNAL):
        return _running_elsewhere(name.removeprefix(EXTERNAL), directory)
    return _pipeline(name, directory)


def load_pipelines(given: Sequence[str]) -> tuple[Pipeline, ...]:
    """The pipelines of one run. Raises DefinitionError, also for duplicate names: they would
    publish to the same topics."""
    found = tuple(load_pipeline(name) for name in given)
    called = Counter(pipeline.name for pipeline in found)
    for name, count in called.items():
        if count > 1:
            files = [
                one for one, pipeline in zip(given, found, strict=True) if pipeline.name == name
            ]
            raise DefinitionError(
                f"Pipelines of one run need different names; {' and '.join(files)} have"
                f" name = {name!r}."
            )
    return found


def defined_in(name: str, directory: Path) -> str:
    """Path of the definition with that name, or `name` itself if it is a path."""
    return name if name.endswith(".toml") else f"{directory.name}/{name}.toml"


def _running_elsewhere(name: str, directory: Path) -> Pipeline:
    if (directory / f"{name}.toml").is_file():
        found = _pipeline(name, directory)
        if found.engine != "external":
            raise DefinitionError(
                f"{EXTERNAL}{name}: {defined_in(name, directory)} is a pipeline of the engine"
                f" {found.engine}; give the external program another name."
            )
        return found
    summary = "An external program that is already running."
    try:
        return checked_pipeline({"name": name, "summary": summary, "engine": "external"})
    except ValidationError as error:
        raise DefinitionError(f"{EXTERNAL}{name}: {first_mistake(error)}.") from error


def load_suite(name: str, directory: Path = SUITES_DIR) -> Suite:
    """One suite by name, or by the path of a TOML file, with its workloads and pipelines. Raises
    DefinitionError."""
    file = _load("suite", SuiteFile.model_validate, name, directory)
    steps = [step for item in file.steps for step in _steps(name, item)]
    try:
        told = file.model_dump(include={"name", "summary", "pace", "notify", "rotation"})
        return Suite.model_validate({**told, "steps": tuple(steps)})
    except ValidationError as error:
        raise DefinitionError(f"suite {name}: {first_mistake(error)}.") from error


def load_study(name: str, directory: Path = STUDIES_DIR) -> Study:
    """One study by name, or by the path of a TOML file. Raises DefinitionError."""
    return _load("study", Study.model_validate, name, directory)


def changed(
    workload: Workload,
    rate_per_second: float | None = None,
    measure_s: int | None = None,
    warm_up_s: int | str | None = None,
    scale: float | None = None,
) -> Workload:
    """A workload with another rate, scale or phase lengths where given. Raises ValidationError, and
    DefinitionError if there is nothing to scale.

    scale: factor for the records of each burst and for the time in which a backlog builds up.
    A shorter measure phase shortens what it contains in proportion: times of kills, start of
    pipelines, earlier parts of the load, and the steps of a search.
    """
    fields = workload.model_dump()
    if scale is not None:
        _scale(fields, scale)
    if rate_per_second is not None:
        fields["load"]["rate_per_second"] = rate_per_second
        fields["sustainable_share"] = None
    if measure_s is not None:
        if 0 < measure_s < fields["phases"]["measure_s"]:
            _shorten(fields, measure_s / fields["phases"]["measure_s"])
        fields["phases"]["measure_s"] = measure_s
    if warm_up_s is not None:
        fields["phases"] |= {"warm_up_s": warm_up_s, "until_steady": False}
    return Workload.model_validate(fields)


def _scale(fields: dict[str, Any], share: float) -> None:
    if not 0 < share <= 1:
        raise DefinitionError("The scale (--scale) must be above 0 and at most 1.")
    load, start_s = fields["load"], fields["pipelines_start_s"]
    bursts = [each for each in (load, *load["parts"]) if each["burst_records"]]
    if not bursts and not start_s:
        raise DefinitionError(
            f"The workload {fields['name']} has no burst and no backlog to scale."
        )
    for each in bursts:
        each["burst_records"] = max(1, round(each["burst_records"] * share))
    if start_s:
        _scale_backlog(fields, share)
        fields["phases"]["measure_s"] -= start_s - fields["pipelines_start_s"]


def _scale_backlog(fields: dict[str, Any], share: float) -> None:
    """Shorten the time before the pipelines start and the load sent in it."""
    start_s = fields["pipelines_start_s"]
    fields["pipelines_start_s"] = max(1, round(start_s * share))
    for part in fields["load"]["parts"]:
        part["for_s"] *= fields["pipelines_start_s"] / start_s


def _shorten(fields: dict[str, Any], share: float) -> None:
    for kill in fields["kills"]:
        kill["at_s"] = int(kill["at_s"] * share)
    if fields["pipelines_start_s"]:
        _scale_backlog(fields, share)
    search = fields["search"]
    if search:
        for name in ("step_s", "confirm_s"):
            search[name] = max(3, min(search[name], int(search[name] * share)))
        search["budget_s"] *= share


def check_thresholds(workload: Workload, published: Mapping[str, Sequence[str]]) -> None:
    """Raise DefinitionError for a threshold on a pipeline or stage that a run does not measure.
    published: the stages of each of its pipelines."""
    for one in map(parse_threshold, workload.thresholds):
        if one.pipeline not in ("", *published):
            raise DefinitionError(
                f"The threshold {one.text!r} is for the pipeline {one.pipeline}; the run measures "
                f"{', '.join(published)}."
            )
        of = [one.pipeline] if one.pipeline else list(published)
        stages = list(dict.fromkeys(stage for name in of for stage in published[name]))
        if one.subject not in (EVERY_STAGE, PIPELINE, INPUT, *stages):
            raise DefinitionError(
                f"The threshold {one.text!r} is for {one.subject}; stages of {', '.join(of)} in "
                f"this run: {', '.join(stages)}."
            )


def _steps(suite: str, item: SuiteItem) -> list[Step]:
    from services.runtime.domains import checked, chosen_workload  # circular import

    domain, base = chosen_workload(item.workload, item.domain or None)
    if base.scaling is not None:
        raise DefinitionError(
            f"suite {suite}: {item.workload} is a series of runs, for `run` only."
        )
    named = item.pipelines or base.pipelines or (DEFAULT_PIPELINE,)
    pipelines = load_pipelines(named)
    stages = item.stages or base.stages
    judged = stages or domain.spec.stage_names
    lines = (*base.thresholds, *item.thresholds)
    base = base.model_copy(update={"thresholds": lines, "domain": domain.place})
    try:
        checked(base, domain)
        published = {one.name: stages_published(one, domain.spec, judged)[0] for one in pipelines}
        for name, found in published.items():
            if not found:
                raise DefinitionError(f"{name} runs none of its stages.")
        check_thresholds(base, published)
    except DefinitionError as error:
        raise DefinitionError(f"suite {suite}: {item.workload}: {error}") from error
    try:
        return [
            Step(
                workload=changed(base, rate, item.duration_s, item.warm_up_s, item.scale),
                pipelines=pipelines,
                stages=stages,
                every_s=item.every_s,
                asked=item.kind,
                baseline=item.baseline,
            )
            for rate in item.rates or (None,)
        ]
    except ValidationError as error:
        raise DefinitionError(f"suite {suite}: {item.workload}: {first_mistake(error)}.") from error


def _workload(fields: dict[str, Any], folder: Path) -> Workload:
    """A workload from a file in a folder, with an absolute path of the file that it names. Raises
    ValueError if that does not exist; an absolute path may be of the generator's machine."""
    found = Workload.model_validate(fields)
    content = found.content
    if not content.path or Path(content.path).is_absolute():
        return found
    path = (folder / content.path).resolve()
    if not path.is_file():
        raise ValueError(f"content.path: {path} is not a file")
    content = content.model_copy(update={"path": str(path)})
    return found.model_copy(update={"content": content})


def _pipeline(name: str, directory: Path) -> Pipeline:
    return _load("pipeline", checked_pipeline, name, directory)


def _load(what: str, read: Callable[[dict[str, Any]], ReadT], name: str, directory: Path) -> ReadT:
    path = _path(name, directory)
    try:
        data = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise DefinitionError(_one_line(f"{what} {name[:80]!r} cannot be read: {error}")) from error
    if data is None and (name.endswith(".toml") or "/" in name):
        raise DefinitionError(f"{name[:200]} is not a file.")
    if data is None:
        raise DefinitionError(unknown(what, name, names(directory)))
    try:
        fields = parse_toml(data)
    except ValueError as error:
        raise DefinitionError(_one_line(f"{path} is not valid TOML: {error}")) from error
    try:
        return read(fields)
    except ValidationError as error:
        raise DefinitionError(_one_line(f"{path}: {first_mistake(error)}.")) from error
    except (OSError, ValueError) as error:
        raise DefinitionError(_one_line(f"{path}: {error}.")) from error


def _path(name: str, directory: Path) -> Path:
    return Path(name) if name.endswith(".toml") else directory / f"{name}.toml"


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".") + "."
