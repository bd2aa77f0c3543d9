"""The watches of a stack: `<data>/watches/NAME.json`, one definition each, with its schemas.

The command line writes these files and the watcher runs a watch for each, for as long as its file
exists. Only the owner may read them because they contain logins.

Schemas of other people's records are Avro (`avro_schemas`), and Protobuf messages of a descriptor
set (`descriptor_sets`).
"""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.codec import checked_schema
from schemas.validation_errors import DefinitionError, first_mistake, listed, unknown
from schemas.watch import AVRO, PROTOBUF, Cluster, Encoding, Watch, WatchedTopic
from services.definitions import avro_schemas
from services.runtime.files import read_toml, write_whole

MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
_OTHERS: Final = 0o077
Model = TypeVar("Model", bound=BaseModel)


def read_watch(path: Path) -> Watch:
    """Read a watch file and include its schema files. Raises DefinitionError."""
    watch = _validated(path, Watch, _fields(path))
    cluster = _checked(path, watch.cluster)
    others = {
        name: _checked(path, each, f"clusters.{name}.") for name, each in watch.clusters.items()
    }
    watch = watch.model_copy(update=dict(cluster) | {"clusters": others})
    return _with_schemas(watch, path.parent)


def judged_until_ms(data: Path, name: str) -> int | None:
    """Up to when the records of a watch were judged when its position was saved, epoch ms; None if
    there is none."""
    try:
        with position_path(data, name).open("rb") as saved:
            return int(json.loads(saved.readline())["rest"]["before_ms"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_cluster(path: Path) -> Cluster:
    """Read only the tables `kafka` and `registry` of a watch file. Raises DefinitionError."""
    fields = {name: each for name, each in _fields(path).items() if name in Cluster.model_fields}
    return _checked(path, _validated(path, Cluster, fields))


def _fields(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DefinitionError(f"{path} is not valid TOML: {error}.") from error


def _validated(path: Path, model: type[Model], fields: dict[str, Any]) -> Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise DefinitionError(f"{path}: {first_mistake(error)}.") from error


def _checked(path: Path, cluster: Cluster, prefix: str = "") -> Cluster:
    """The cluster with absolute paths of certificates and keys; in the file they are relative to
    its folder. prefix: of its settings there. Raises DefinitionError."""
    if cluster.has_secrets and path.stat().st_mode & _OTHERS:
        raise DefinitionError(f"{path} has a secret and is readable by others: chmod 600 {path}")

    def absolute(name: str, given: str) -> str:
        result = path.parent.absolute() / given
        if not result.exists():
            raise DefinitionError(f"{path}: {prefix}{name}: {result} does not exist.")
        return str(result)

    kafka, registry = cluster.kafka, cluster.registry
    properties = {
        name: absolute(f"kafka.properties.{name}", value) if _is_path(name, value) else value
        for name, value in kafka.properties.items()
    }
    if registry is not None and registry.ca_path:
        ca_path = absolute("registry.ca_path", registry.ca_path)
        registry = registry.model_copy(update={"ca_path": ca_path})
    return Cluster(kafka=kafka.model_copy(update={"properties": properties}), registry=registry)


def _is_path(name: str, value: str) -> bool:
    """Whether a property of librdkafka is a path. `probe` makes it look for the authorities."""
    return name.startswith("ssl.") and name.endswith(".location") and value not in ("", "probe")


def keep_watch(data: Path, watch: Watch) -> bool:
    """Start or update a watch; True if it is new or changed. Raises OSError."""
    path = _path(data, watch.name)
    text = _json(watch)
    if path.is_file() and path.read_text() == text:
        return False
    write_whole(path, text)
    return True


def kept_watch(data: Path, name: str) -> Watch:
    """A running watch. Raises OSError, ValueError."""
    return Watch.model_validate_json(_path(data, name).read_bytes())


def kept_watches(data: Path) -> dict[str, int]:
    """Names of the running watches, and when each file was written (nanoseconds)."""
    result = {}
    for path in sorted(_folder(data).glob("*.json")):
        try:
            result[path.stem] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # removed in the meantime
    return result


def end_watch(data: Path, name: str) -> None:
    """End a watch. Raises DefinitionError."""
    known = kept_watches(data)
    if name not in known:  # it may also be a path out of the folder
        raise DefinitionError(unknown("watch", name, [*known]))
    _path(data, name).unlink(missing_ok=True)


def position_path(data: Path, name: str) -> Path:
    """Path of a watch's saved position."""
    return data / "watching" / f"{name}.position"


def positions(data: Path) -> set[str]:
    """Names of the watches with a saved position."""
    return {path.stem for path in position_path(data, "any").parent.glob("*.position")}


def _with_schemas(watch: Watch, folder: Path) -> Watch:
    fields: dict[str, Any] = json.loads(_json(watch))
    for side in (*fields["inputs"], *fields["through"], *fields["outputs"]):
        topic = WatchedTopic.model_validate(side)
        side["schemas"] = [
            _schema(folder / each, topic.values, topic.paths_in("value")) for each in topic.schemas
        ]
        side["key_schemas"] = [
            _schema(folder / each, topic.keys, topic.paths_in("key")) for each in topic.key_schemas
        ]
        side["schema_ids"] = {
            number: _avro_schema(folder / each)[0] for number, each in topic.schema_ids.items()
        }
    return Watch.model_validate(fields)


def _schema(path: Path, encoding: Encoding, paths: list[list[str]]) -> str:
    """A schema file as the watcher needs it. paths: what is looked up in records. Raises
    DefinitionError."""
    if encoding.format in PROTOBUF:
        return _descriptors(path, encoding.message, paths)
    if encoding.format not in AVRO:
        return _text(path)
    text, schema = _avro_schema(path)
    if len(encoding.schemas) == 1:  # of several types each may have some of the paths
        _check_paths(path, paths, partial(avro_schemas.fields_instead, schema))
    return text


def _check_paths(
    path: Path, paths: list[list[str]], instead: Callable[[list[str]], list[str] | None]
) -> None:
    for names in paths:
        known = instead(names)
        if known is not None:
            rest = f"; there it has: {listed(known)}" if known else ""
            raise DefinitionError(f"{path} has no field {'.'.join(names)}{rest}.")


def _avro_schema(path: Path) -> tuple[str, Any]:
    """The text of an `.avsc`, which the watcher parses by itself, and the schema as `parsed`
    returns it. Raises DefinitionError."""
    text = _text(path)
    try:
        with checked_schema():
            schema = json.loads(text)
        return text, avro_schemas.parsed([schema])
    except ValueError as error:
        raise DefinitionError(f"{path} is {error}.") from error


def _text(path: Path) -> str:
    try:
        return _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{path} is not text.") from error


def _descriptors(path: Path, message: str, paths: list[list[str]]) -> str:
    """A descriptor set in Base64. Raises DefinitionError if it is of no use for a message."""
    from services.definitions import descriptor_sets

    content = _content(path)
    try:
        message_class = descriptor_sets.message_class(content, message)
    except ValueError as error:
        raise DefinitionError(f"{path} {error}.") from error
    _check_paths(path, paths, partial(descriptor_sets.fields_instead, message_class))
    return base64.b64encode(content).decode()


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_SCHEMA_BYTES:
        raise DefinitionError(f"{path} is larger than {MAX_SCHEMA_BYTES} bytes.")
    return data


def _json(watch: Watch) -> str:
    return watch.model_dump_json()


def _folder(data: Path) -> Path:
    return data / "watches"


def _path(data: Path, name: str) -> Path:
    return _folder(data) / f"{name}.json"
