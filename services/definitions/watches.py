"""The watches of a stack: `<data>/watches/NAME.json`, one definition each, with its schemas.

The command line writes these files and the watcher runs a watch for each, for as long as its file
exists. Only the owner may read them because they contain logins.

Schemas of other people's records are Avro, and Protobuf messages of a descriptor set.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import fastavro
from pydantic import BaseModel, ValidationError

from schemas.codec import checked_schema, without_logical_types
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from schemas.watch import AVRO, PROTOBUF, Cluster, Watch
from services.runtime.files import read_toml, write_whole

MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
_OTHERS: Final = 0o077
Model = TypeVar("Model", bound=BaseModel)


def parsed(schemas: list[Any]) -> Any:
    """The last of some Avro schemas, which may refer to earlier ones, without logical types:
    identities use raw values. Raises ValueError."""
    named: dict[str, Any] = {}
    with checked_schema():
        for schema in schemas:
            result = fastavro.parse_schema(
                without_logical_types(schema), named_schemas=named, _force=True
            )
            _takes_bytes(result, named, {})
    return result


def _takes_bytes(schema: Any, named: Mapping[str, Any], known: dict[str, bool | None]) -> bool:
    """Whether every value of a parsed schema takes at least a byte. known: the same by record, None
    while its fields are visited.

    Raises ValueError if a few bytes could be a record of any depth or length: for a record that
    contains itself, and for an array of items that take no bytes.
    """
    if isinstance(schema, list):
        for each in schema:
            _takes_bytes(each, named, known)
        return True  # the number of the branch
    if isinstance(schema, str):
        if schema not in named:
            return schema != "null"
        schema = named[schema]
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record_takes_bytes(schema, named, known)
    if kind in ("array", "map"):
        takes = _takes_bytes(schema["items" if kind == "array" else "values"], named, known)
        if kind == "array" and not takes:
            raise ValueError("it has an array of items that take no bytes")
        return True
    if kind == "fixed":
        return bool(schema["size"])
    return kind == "enum" or _takes_bytes(kind, named, known)


def _record_takes_bytes(
    record: Any, named: Mapping[str, Any], known: dict[str, bool | None]
) -> bool:
    name = record["name"]
    if name not in known:
        known[name] = None
        takes = [_takes_bytes(field["type"], named, known) for field in record["fields"]]
        known[name] = any(takes)
    result = known[name]
    if result is None:
        raise ValueError(f"{name} contains itself")
    return result


def read_watch(path: Path) -> Watch:
    """Read a watch file and include its schema files. Raises DefinitionError."""
    watch = _validated(path, Watch, _fields(path))
    cluster = _checked(path, watch.cluster)
    others = {
        name: _checked(path, each, f"clusters.{name}.") for name, each in watch.clusters.items()
    }
    watch = watch.model_copy(update=dict(cluster) | {"clusters": others})
    return _with_schemas(watch, path.parent)


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
        is_avro = side["format"] in AVRO or side["key"] in AVRO
        read = _avro_schema if is_avro else _text
        if side["format"] in PROTOBUF:
            side["schemas"] = [_descriptors(folder / each, side) for each in side["schemas"]]
        else:
            side["schemas"] = [read(folder / each) for each in side["schemas"]]
        side["schema_ids"] = {
            number: read(folder / each) for number, each in side["schema_ids"].items()
        }
    return Watch.model_validate(fields)


def _avro_schema(path: Path) -> str:
    """The text of an `.avsc`, which the watcher parses by itself. Raises DefinitionError."""
    text = _text(path)
    try:
        with checked_schema():
            schema = json.loads(text)
        parsed([schema])
    except ValueError as error:
        raise DefinitionError(f"{path} is {error}.") from error
    return text


def _text(path: Path) -> str:
    try:
        return _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{path} is not text.") from error


def _descriptors(path: Path, side: dict[str, Any]) -> str:
    """A descriptor set in Base64. Raises DefinitionError if it is of no use for a topic."""
    from services.definitions.descriptor_sets import message_class

    content = _content(path)
    try:
        message_class(content, side["message"])
    except ValueError as error:
        raise DefinitionError(f"{path} {error}.") from error
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
