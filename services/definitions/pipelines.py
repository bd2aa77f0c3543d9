"""Pipelines: `pipelines/NAME.toml`, checked against their engine, and what one publishes. Workloads
and the like are found by name in the same way.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.domain import DomainSpec, StageSpec
from schemas.engine import Ability, EngineSpec, Topology
from schemas.model import Stage
from schemas.pipeline import FOR, Pipeline, Purpose, secret_among
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from schemas.workload import Workload
from services.definitions.engines import FILE, load_engine
from services.runtime.files import parse_toml
from services.runtime.settings import ROOT

ReadT = TypeVar("ReadT")
PIPELINES_DIR = ROOT / "pipelines"
EXTERNAL = "external:"
AT = "@"
NO_NAME = re.compile(r"[^a-z0-9]+")  # what the name of a pipeline may not have
OWN_FIELDS = frozenset({*Pipeline.model_fields, FOR})
FIXED = frozenset({"name", "engine", "summary", FOR, "purposes"})
DEFAULT_PIPELINE = "spark-realtime"  # if no command, suite or workload names one


def names(directory: Path) -> tuple[str, ...]:
    """Names defined in a directory, sorted."""
    return tuple(sorted(path.stem for path in directory.glob("*.toml")))


def defined_in(name: str, directory: Path) -> str:
    """Path of the definition with that name, or `name` itself if it is a path."""
    return name if name.endswith(".toml") else f"{directory.name}/{name}.toml"


def load_file(
    what: str, read: Callable[[dict[str, Any]], ReadT], name: str, directory: Path
) -> ReadT:
    """What `read` makes of a file, given by name or path. what: it is, for messages. Raises
    DefinitionError, whose text is one sentence with the file, the field and the allowed values."""
    path = path_of(name, directory)
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


def path_of(name: str, directory: Path) -> Path:
    """The path of a file given by name, or by path."""
    return Path(name) if name.endswith(".toml") else directory / f"{name}.toml"


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".") + "."


def load_pipeline(name: str, directory: Path = PIPELINES_DIR) -> Pipeline:
    """One pipeline by name, or by the path of a TOML file; `external:NAME` needs no file.

    `external:NAME` is a running program that writes `output.NAME.<stage>`. `NAME@VERSION` is the
    pipeline NAME with another version of its engine, which its name tells. Raises DefinitionError.
    """
    if name.startswith(EXTERNAL):
        return _running_elsewhere(name.removeprefix(EXTERNAL), directory)
    file, at, version = name.rpartition(AT)
    if not at or path_of(name, directory).is_file():
        return _pipeline(name, directory)
    if not version:
        raise DefinitionError(f"{name}: a version must follow the {AT}.")
    pipeline = _pipeline(file, directory)
    changes = {"version": version, "name": f"{pipeline.name}-{NO_NAME.sub('-', version)}"}
    return _changed(pipeline, changes, f"{name}: ")


def load_pipelines(given: Sequence[str]) -> tuple[Pipeline, ...]:
    """The pipelines of one run. Raises DefinitionError, also for duplicate names: they would
    publish to the same topics."""
    result = tuple(load_pipeline(name) for name in given)
    called = Counter(pipeline.name for pipeline in result)
    for name, count in called.items():
        if count > 1:
            files = [
                each for each, pipeline in zip(given, result, strict=True) if pipeline.name == name
            ]
            raise DefinitionError(
                f"Pipelines of one run need different names; {' and '.join(files)} have"
                f" name = {name!r}."
            )
    return result


def _running_elsewhere(name: str, directory: Path) -> Pipeline:
    if (directory / f"{name}.toml").is_file():
        result = _pipeline(name, directory)
        if result.engine != "external":
            raise DefinitionError(
                f"{EXTERNAL}{name}: {defined_in(name, directory)} is a pipeline of the engine"
                f" {result.engine}; give the external program another name."
            )
        return result
    summary = "An external program that is already running."
    try:
        return checked_pipeline({"name": name, "summary": summary, "engine": "external"})
    except ValidationError as error:
        raise DefinitionError(f"{EXTERNAL}{name}: {first_mistake(error)}.") from error


def _pipeline(name: str, directory: Path) -> Pipeline:
    return load_file("pipeline", checked_pipeline, name, directory)


def checked_pipeline(given: dict[str, Any]) -> Pipeline:
    """The pipeline described by a file, with all settings of its engine, validated.

    Raises ValidationError, and ValueError with the field and the allowed values.
    """
    fields = {"engine": "", **given}
    engine = load_engine(str(fields["engine"])).at(str(fields.get("version", ""))).spec
    own = {name: value for name, value in fields.items() if name in OWN_FIELDS}
    bare = Pipeline.model_validate(own)
    settings = _settings(engine, {name: fields[name] for name in fields if name not in own})
    pipeline = Pipeline.model_validate({**bare.model_dump(), **settings})
    _check_combination(engine, pipeline)
    for purpose in pipeline.purposes:
        try:
            for_purpose(pipeline, purpose)
        except ValidationError as error:
            raise ValueError(f"{FOR}.{purpose}: {first_mistake(error)}") from error
        except ValueError as error:
            raise ValueError(f"{FOR}.{purpose}: {error}") from error
    return pipeline


def for_purpose(pipeline: Pipeline, purpose: Purpose | None) -> Pipeline:
    """The pipeline with its settings for a purpose, and without those for others. Raises ValueError
    if these do not fit its engine."""
    if not pipeline.purposes:
        return pipeline
    own = pipeline.purposes.get(purpose, {}) if purpose else {}
    if fixed := FIXED & own.keys():
        raise ValueError(f"{min(fixed)} cannot differ by purpose")
    return checked_pipeline(merged(pipeline.model_dump(), own) | {"purposes": {}})


def in_workload(pipeline: Pipeline, workload: Workload) -> Pipeline:
    """The pipeline with the settings for the purpose of a workload and with its number of workers.
    Raises DefinitionError."""
    try:
        chosen = for_purpose(pipeline, workload.purpose)
    except ValueError as error:
        raise DefinitionError(f"{pipeline.name}: {error}.") from error
    return chosen if workload.workers is None else at_workers(chosen, workload.workers)


def merged(fields: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The fields updated with others; tables are merged recursively."""
    result = dict(fields)
    for name, value in other.items():
        before = result.get(name)
        are_tables = isinstance(value, Mapping) and isinstance(before, Mapping)
        result[name] = merged(before, value) if are_tables and before is not None else value
    return result


def with_settings(pipeline: Pipeline, given: Mapping[str, Any]) -> Pipeline:
    """The pipeline with other values of its engine's settings or other `cores` or another
    `version`, for every purpose. Raises DefinitionError."""
    known = (*load_engine(pipeline.engine).spec.settings, "cores", "version")
    for name in given:
        if name not in known:
            what = f"setting of {pipeline.engine}"
            raise DefinitionError(f"{pipeline.name}: {unknown(what, name, known)}")
    purposes = {
        purpose: {name: value for name, value in own.items() if name not in given}
        for purpose, own in pipeline.purposes.items()
    }
    return _changed(pipeline, {**given, "purposes": purposes}, f"{pipeline.name}: ")


def with_workers(pipeline: Pipeline, workers: int, name: str) -> Pipeline:
    """The pipeline with this number of workers and another name; the engine defines what a worker
    is. Raises DefinitionError, also if the engine does not define it."""
    settings = _ability_of(pipeline).scales_by
    if not settings:
        raise DefinitionError(
            f"{pipeline.name}: {pipeline.engine} has no setting for a number of workers "
            f"(scales_by in its {FILE})."
        )
    changes = {"name": name} | dict.fromkeys(settings, workers)
    return _changed(pipeline, changes, f"{workers} workers: ")


def _changed(pipeline: Pipeline, changes: Mapping[str, Any], who: str) -> Pipeline:
    """The pipeline with other fields. who: begins the sentence of a DefinitionError."""
    try:
        return checked_pipeline({**pipeline.model_dump(), **changes})
    except ValidationError as error:
        raise DefinitionError(f"{who}{first_mistake(error)}.") from error
    except ValueError as error:
        raise DefinitionError(f"{who}{str(error).rstrip('.')}.") from error


def at_workers(pipeline: Pipeline, workers: int) -> Pipeline:
    """The pipeline with this number of workers, or unchanged if its engine does not define workers.
    Raises DefinitionError."""
    if not _ability_of(pipeline).scales_by:
        return pipeline
    return with_workers(pipeline, workers, pipeline.name)


def _settings(engine: EngineSpec, given: dict[str, Any]) -> dict[str, Any]:
    """All settings in the engine's order, with defaults."""
    for name in given:
        if name not in engine.settings:
            own = (FOR if each == "purposes" else each for each in Pipeline.model_fields)
            known = ", ".join((*own, *engine.settings))
            raise ValueError(f"{name}: {engine.name} has no such setting; there are: {known}")
    name = secret_among(given)
    if name:
        where = f"; set it in {engine.secrets[0]}" if engine.secrets else ""
        raise ValueError(f"{name} looks like a secret, and runs publish their pipelines{where}")
    result: dict[str, Any] = {}
    for name, setting in engine.settings.items():
        value = given.get(name, setting.default)
        if value is None:
            allowed = f" ({', '.join(map(str, setting.choices))})" if setting.choices else ""
            raise ValueError(f"{name}: {engine.name} needs this setting{allowed}: {setting.help}")
        try:
            result[name] = setting.checked(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return result


def _check_combination(engine: EngineSpec, pipeline: Pipeline) -> None:
    ability = engine.ability_of(pipeline)
    if ability is None:
        raise ValueError(
            f"{engine.name} has no {_combination(engine, pipeline)}; it has: "
            f"{'; '.join(combinations(engine))}"
        )
    such = _combination(engine, pipeline)
    such = f"{engine.name} with {such}" if such else engine.name
    if pipeline.incomplete_windows not in ability.incomplete_windows:
        kept = " or ".join(ability.incomplete_windows)
        raise ValueError(f"incomplete_windows: {such} can only {kept} incomplete windows")
    if pipeline.reads and ability.topology != "chained":
        raise ValueError(f"reads: {such} does not compute stages from stages, so none can be named")
    for name, values in ability.requires.items():
        if pipeline.settings[name] not in values:
            raise ValueError(f"{name}: {such} needs {name} {' or '.join(values)}")


def combinations(engine: EngineSpec) -> list[str]:
    """The combinations of settings that distinguish an engine's abilities, as text."""
    return [
        " and ".join(f"{name} {' or '.join(values)}" for name, values in ability.when.items())
        for ability in engine.abilities
        if ability.when
    ]


def _combination(engine: EngineSpec, pipeline: Pipeline) -> str:
    names = dict.fromkeys(name for ability in engine.abilities for name in ability.when)
    return " and ".join(f"{name} {pipeline.settings.get(name)}" for name in names)


def reason_against(ability: Ability, domain: DomainSpec, stage: Stage) -> str:
    """Why a pipeline cannot publish a stage of a domain; empty if it can.

    The pipeline must support the stage and the stages before it, except those that only copy or
    decode and need no topic of their own.
    """
    inline = () if ability.topology == "via-topics" else ("copy", "decode")
    for step in domain.chain(stage):
        if step.needs in ability.cannot and (step.name == stage or step.kind not in inline):
            because = ability.cannot[step.needs]  # type: ignore[index]
            return because if step.name == stage else f"it depends on {step.name}; {because}"
    return ""


def stages_published(
    pipeline: Pipeline, domain: DomainSpec, asked: tuple[Stage, ...]
) -> tuple[tuple[Stage, ...], dict[Stage, str]]:
    """The requested stages that a pipeline publishes, and for the others, unless the pipeline omits
    them itself, the reason. With topology `via-topics` the stages that these read are published
    too. Raises DefinitionError, also for a stage that the domain does not have."""
    unknown_stage = next((stage for stage in asked if stage not in domain.stage_names), None)
    if unknown_stage is not None:
        raise DefinitionError(
            f"The domain {domain.name} has no stage {unknown_stage!r}; it has: "
            f"{', '.join(domain.stage_names)}."
        )
    ability = _ability_of(pipeline)
    wanted = [stage for stage in asked if not pipeline.stages or stage in pipeline.stages]
    against = {stage: reason_against(ability, domain, stage) for stage in wanted}
    published = tuple(stage for stage, reason in against.items() if not reason)
    if ability.topology == "via-topics":
        needed = {step.name for stage in published for step in domain.chain(stage)}
        published = tuple(stage for stage in domain.stage_names if stage in needed)
    return published, {stage: reason for stage, reason in against.items() if reason}


def topology_of(pipeline: Pipeline) -> Topology:
    """From where the stages of a pipeline read their rows. Raises DefinitionError."""
    return _ability_of(pipeline).topology


def _ability_of(pipeline: Pipeline) -> Ability:
    ability = load_engine(pipeline.engine).spec.ability_of(pipeline)
    if ability is None:
        raise DefinitionError(f"{pipeline.name}: {pipeline.engine} has no such settings.")
    return ability


def rewired(domain: DomainSpec, reads: Mapping[str, str]) -> DomainSpec:
    """The domain in which each stage named in `reads` reads the given stage.

    Stages unknown to the domain are skipped. Raises ValueError if the outputs of a stage lack what
    the reading stage needs.
    """
    fields = domain.model_dump()
    for spec, stage in zip(domain.stages, fields["stages"], strict=True):
        if spec.name in reads:
            name = reads[spec.name]
            if name not in domain.stage_names:
                raise ValueError(f"reads: {domain.name} has no stage {name!r} for {spec.name}")
            stage.update(_reading(spec, domain.stage(name)))
    return DomainSpec.model_validate(fields)


def _reading(spec: StageSpec, before: StageSpec) -> dict[str, object]:
    """The changed fields of a stage that reads the outputs of another."""
    if not set(spec.keys) <= set(before.keys):
        raise ValueError(f"reads: {spec.name} has keys that {before.name} does not publish")
    aggregates = [
        aggregate.model_dump()
        | {"of": tuple(_published_as(of, spec, before) for of in aggregate.of)}
        for aggregate in spec.aggregates
    ]
    return {"reads": (before.name,), "aggregates": aggregates}


def _published_as(source: str, spec: StageSpec, before: StageSpec) -> str:
    """The column in which the stage before publishes a source of this stage."""
    column = source.rsplit(".", maxsplit=1)[-1]
    if column in before.keys:
        return column
    for aggregate in before.aggregates:
        if aggregate.function == "first" and aggregate.of == (source,):
            return aggregate.column
    raise ValueError(f"reads: {spec.name} needs {source}, which {before.name} does not publish")
