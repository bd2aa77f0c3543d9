"""Engines as folders with an `engine.toml`: in `engines/`, in `services/`, or the user's own.

TIDEGAUGE_ENGINES lists the user's folders, separated as in PATH. Each is one engine or contains
several. Pipeline files are checked against their engine here.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.domain import DomainSpec
from schemas.engine import Ability, EngineSpec, Topology
from schemas.model import Stage
from schemas.pipeline import Pipeline, secret_among
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from services.runtime.settings import ROOT
from services.runtime.toml_files import read_toml

FILE = "engine.toml"
FOLDERS = "TIDEGAUGE_ENGINES"


@dataclass(frozen=True)
class Engine:
    """An engine and the folder that defines it."""

    spec: EngineSpec
    folder: Path


def load_engines() -> dict[str, Engine]:
    """All engines by name, sorted. Raises DefinitionError."""
    found: dict[str, Engine] = {}
    for folder in _folders():
        engine = _load(folder)
        if engine.spec.name in found:
            raise DefinitionError(
                f"Two engines are named {engine.spec.name!r}: {found[engine.spec.name].folder} and "
                f"{folder}."
            )
        found[engine.spec.name] = engine
    return dict(sorted(found.items()))


def load_engine(name: str) -> Engine:
    """One engine by name. Raises DefinitionError."""
    engines = load_engines()
    if name not in engines:
        raise DefinitionError(unknown("engine", name, tuple(engines)))
    return engines[name]


def engine_of(pipeline: Pipeline) -> Engine | None:
    """The engine of a pipeline; None if it is not on this machine."""
    try:
        return load_engines().get(pipeline.engine)
    except DefinitionError:
        return None


def make_folders_absolute() -> None:
    """Make the paths in TIDEGAUGE_ENGINES absolute for child processes in another folder. Raises
    DefinitionError for one that is not a folder."""
    folders = [Path(one) for one in os.environ.get(FOLDERS, "").split(os.pathsep) if one]
    for folder in folders:
        if not folder.is_dir():
            raise DefinitionError(f"{FOLDERS} names {folder}, which is not a folder.")
    if folders:
        os.environ[FOLDERS] = os.pathsep.join(str(folder.resolve()) for folder in folders)


def _folders() -> Iterator[Path]:
    for home in ("engines", "services"):
        yield from sorted(path.parent for path in (ROOT / home).glob(f"*/{FILE}"))
    for text in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)):
        folder = Path(text)
        if (folder / FILE).is_file():
            yield folder
        else:
            yield from sorted(path.parent for path in folder.glob(f"*/{FILE}"))


def _load(folder: Path) -> Engine:
    path = folder / FILE
    try:
        return Engine(EngineSpec.model_validate(read_toml(path)), folder.resolve())
    except ValidationError as error:
        raise DefinitionError(f"{path}: {first_mistake(error)}.") from error
    except (OSError, ValueError) as error:
        raise DefinitionError(f"{path}: {' '.join(str(error).split())}.") from error


def checked_pipeline(given: dict[str, Any]) -> Pipeline:
    """The pipeline described by a file, with all settings of its engine, validated.

    Raises ValidationError, and ValueError with the field and the allowed values.
    """
    fields = {"engine": "", **given}
    engine = load_engine(str(fields["engine"])).spec
    own = {name: value for name, value in fields.items() if name in Pipeline.model_fields}
    bare = Pipeline.model_validate(own)
    settings = _settings(engine, {name: fields[name] for name in fields if name not in own})
    pipeline = Pipeline.model_validate({**bare.model_dump(), **settings})
    _check_combination(engine, pipeline)
    return pipeline


def with_workers(pipeline: Pipeline, workers: int, name: str) -> Pipeline:
    """The pipeline with this number of workers and another name; the engine defines what a worker
    is. Raises DefinitionError, also if the engine does not define it."""
    settings = _ability_of(pipeline).scales_by
    if not settings:
        raise DefinitionError(
            f"{pipeline.name}: {pipeline.engine} has no setting for a number of workers "
            f"(scales_by in its {FILE})."
        )
    fields = pipeline.model_dump() | {"name": name} | dict.fromkeys(settings, workers)
    try:
        return checked_pipeline(fields)
    except ValidationError as error:
        raise DefinitionError(f"{workers} workers: {first_mistake(error)}.") from error
    except ValueError as error:
        raise DefinitionError(f"{workers} workers: {error}.") from error


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
            known = ", ".join((*Pipeline.model_fields, *engine.settings))
            raise ValueError(f"{name}: {engine.name} has no such setting; there are: {known}")
    name = secret_among(given)
    if name:
        where = f"; set it in {engine.secrets[0]}" if engine.secrets else ""
        raise ValueError(f"{name} looks like a secret, and runs publish their pipelines{where}")
    found: dict[str, Any] = {}
    for name, setting in engine.settings.items():
        value = given.get(name, setting.default)
        if value is None:
            allowed = f" ({', '.join(map(str, setting.choices))})" if setting.choices else ""
            raise ValueError(f"{name}: {engine.name} needs this setting{allowed}: {setting.help}")
        try:
            found[name] = setting.checked(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return found


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
        " and ".join(f"{name} {' or '.join(values)}" for name, values in one.when.items())
        for one in engine.abilities
        if one.when
    ]


def _combination(engine: EngineSpec, pipeline: Pipeline) -> str:
    names = dict.fromkeys(name for one in engine.abilities for name in one.when)
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
