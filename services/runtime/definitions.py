"""Workloads and pipelines as files: `workloads/NAME.toml` and `pipelines/NAME.toml`.

Two independent axes: what load, on what. A file that is not TOML or does not fit its model gives a
DefinitionError whose text is one sentence with the file, the field and what was allowed.
"""

import difflib
import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from schemas.pipeline import External
from schemas.protocol import Model, Pipeline, Workload
from services.runtime.settings import ROOT

WORKLOADS_DIR = ROOT / "workloads"
PIPELINES_DIR = ROOT / "pipelines"
EXTERNAL = "external:"

ModelT = TypeVar("ModelT", bound=Model)


class DefinitionError(ValueError):
    """A workload or pipeline is unknown or its file is wrong; the text is one sentence."""


def names(directory: Path) -> tuple[str, ...]:
    """Names defined in a directory, sorted."""
    return tuple(sorted(path.stem for path in directory.glob("*.toml")))


def load_workload(name: str, directory: Path = WORKLOADS_DIR) -> Workload:
    """One workload by name, or by the path of a TOML file. Raises DefinitionError."""
    return _load("workload", Workload, name, directory)


def load_pipeline(name: str, directory: Path = PIPELINES_DIR) -> Pipeline:
    """One pipeline by name, or by the path of a TOML file; `external:NAME` needs no file.

    It is a program that runs already and writes `output.NAME.<stage>`. Raises DefinitionError.
    """
    if name.startswith(EXTERNAL):
        return _running_elsewhere(name.removeprefix(EXTERNAL), directory)
    return _load("pipeline", Pipeline, name, directory)


def _running_elsewhere(name: str, directory: Path) -> Pipeline:
    if (directory / f"{name}.toml").is_file():
        return _load("pipeline", Pipeline, name, directory)
    summary = "A program that is no part of Tidegauge and runs already."
    try:
        return Pipeline(name=name, summary=summary, mode="external", external=External())
    except ValidationError as error:
        raise DefinitionError(f"{EXTERNAL}{name}: {error.errors()[0]['msg']}.") from error


def _load(what: str, model: type[ModelT], name: str, directory: Path) -> ModelT:
    path = Path(name) if name.endswith(".toml") else directory / f"{name}.toml"
    if not path.is_file():
        raise DefinitionError(_unknown(what, name, directory))
    try:
        return model.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path} is not valid TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise DefinitionError(f"{path}: {field}: {first['msg']}.") from error


def _unknown(what: str, name: str, directory: Path) -> str:
    known = names(directory)
    close = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no {what} {name!r}; there are: {', '.join(known)}.{hint}"
