"""Schemas of other people's records: Avro, and Protobuf messages of a descriptor set, as
`protoc --descriptor_set_out` writes it (files of `google/protobuf/` need not be in the set).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from schemas.codec import checked_schema, without_logical_types

WELL_KNOWN: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"),
    *("timestamp", "type", "wrappers"),
)
MOST_NAMED: Final = 20
NOT_A_SET: Final = "is not a descriptor set; protoc --descriptor_set_out makes one"
Files = dict[str, Any]  # descriptors by name


def parsed(schemas: list[Any]) -> Any:
    """The last of some Avro schemas, which may refer to earlier ones, without logical types:
    identities use raw values. Raises ValueError."""
    named: dict[str, Any] = {}
    with checked_schema():
        for one in schemas:
            found = fastavro.parse_schema(
                without_logical_types(one), named_schemas=named, _force=True
            )
            _takes_bytes(found, named, {})
    return found


def _takes_bytes(schema: Any, named: Mapping[str, Any], known: dict[str, bool | None]) -> bool:
    """Whether every value of a parsed schema takes at least a byte. known: the same by record, None
    while its fields are visited.

    Raises ValueError if a few bytes could be a record of any depth or length: for a record that
    contains itself, and for an array of items that take no bytes.
    """
    if isinstance(schema, list):
        for one in schema:
            _takes_bytes(one, named, known)
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
    found = known[name]
    if found is None:
        raise ValueError(f"{name} contains itself")
    return found


def message_class(descriptor_set: bytes, name: str) -> Any:
    """The class of a message. Raises ValueError with the remedy, to be read after the name of the
    file: `is …` or `has …`."""
    files = _files(descriptor_set)
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        _add(pool, file, files)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError as error:
        known = sorted(one for file in files.values() for one in _names(file.message_type, file))
        listed = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
        raise ValueError(f"has no message {name}; it has: {listed or 'none'}") from error


def _files(descriptor_set: bytes) -> Files:
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise ValueError(
            "is not a descriptor set; protoc --descriptor_set_out makes one"
        ) from error
    if not any(file.name for file in found.file):
        raise ValueError(NOT_A_SET)
    return {file.name: file for file in found.file}


def _add(
    pool: descriptor_pool.DescriptorPool,
    file: Any,
    files: dict[str, Any],
    above: Sequence[str] = (),
) -> None:
    """Add a file after those that it imports."""
    if file.name in above:
        raise ValueError(f"is not a descriptor set: {file.name} imports itself")
    for name in file.dependency:
        found = files.get(name) or _well_known().get(name)
        if found is None:
            raise ValueError(
                f"lacks {name}, which {file.name} imports; make it with protoc --include_imports"
            )
        _add(pool, found, files, (*above, file.name))
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(f"is not a descriptor set: {file.name} is not valid") from error


@cache
def _well_known() -> Files:
    found = {}
    for name in WELL_KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(file)
        found[file.name] = file
    return found


def _names(messages: Any, above: Any) -> Iterator[str]:
    """Full names of messages and of those inside them. above: the file, or the outer name."""
    prefix = above if isinstance(above, str) else above.package
    for one in messages:
        if not one.options.map_entry:
            name = f"{prefix}.{one.name}".lstrip(".")
            yield name
            yield from _names(one.nested_type, name)


def type_at(message: Any, indexes: Sequence[int]) -> str:
    """The full name of the message at some indexes in the file of a message class, as Confluent's
    header has them: of the outer message in its file, then of each inside the one before. Entries
    of maps are not counted. Raises IndexError if there is none."""
    found, inside = None, list(message.DESCRIPTOR.file.message_types_by_name.values())
    for index in indexes:
        if index < 0:
            raise IndexError(index)
        found = inside[index]
        inside = [one for one in found.nested_types if not one.GetOptions().map_entry]
    if found is None:
        raise IndexError(0)
    return str(found.full_name)
