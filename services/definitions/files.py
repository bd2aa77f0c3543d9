"""Files of definitions by name: `workloads/NAME.toml` and so on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.validation_errors import DefinitionError, first_mistake, unknown
from services.runtime.toml_files import parse_toml

ReadT = TypeVar("ReadT")


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
