"""Messages of a Protobuf descriptor set, as `protoc --descriptor_set_out` writes it. Files of
`google/protobuf/` need not be in it. Imported only for watches of Protobuf.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from schemas.validation_errors import listed

WELL_KNOWN: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"),
    *("timestamp", "type", "wrappers"),
)
NOT_A_SET: Final = "is not a descriptor set; protoc --descriptor_set_out makes one"
Files = dict[str, Any]  # descriptors by name


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
        known = sorted(each for file in files.values() for each in _names(file.message_type, file))
        raise ValueError(f"has no message {name}; it has: {listed(known) or 'none'}") from error


def _files(descriptor_set: bytes) -> Files:
    try:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise ValueError(NOT_A_SET) from error
    if not any(file.name for file in descriptors.file):
        raise ValueError(NOT_A_SET)
    return {file.name: file for file in descriptors.file}


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
        result = files.get(name) or _well_known().get(name)
        if result is None:
            raise ValueError(
                f"lacks {name}, which {file.name} imports; make it with protoc --include_imports"
            )
        _add(pool, result, files, (*above, file.name))
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(f"is not a descriptor set: {file.name} is not valid") from error


@cache
def _well_known() -> Files:
    result = {}
    for name in WELL_KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(file)
        result[file.name] = file
    return result


def _names(messages: Any, above: Any) -> Iterator[str]:
    """Full names of messages and of those inside them. above: the file, or the outer name."""
    prefix = above if isinstance(above, str) else above.package
    for message in messages:
        if not message.options.map_entry:
            name = f"{prefix}.{message.name}".lstrip(".")
            yield name
            yield from _names(message.nested_type, name)


def fields_instead(message: Any, names: Sequence[str]) -> list[str] | None:
    """The fields of the message in which a path has none of them; None if values can have the path.
    message: a message class."""
    at, rest = message.DESCRIPTOR, [*names]
    field = None
    while rest:
        if at is None:  # a text may be JSON that a path leads into
            is_text = field is not None and field.type in (field.TYPE_STRING, field.TYPE_BYTES)
            return None if is_text else []
        name = rest.pop(0)
        if name not in at.fields_by_name:
            return [*at.fields_by_name]
        field = at.fields_by_name[name]
        at = field.message_type
        if at is not None and at.GetOptions().map_entry:
            at = at.fields_by_name["value"].message_type
            rest = rest[1:]
        elif field.is_repeated:
            index = rest.pop(0) if rest else "0"
            if not index.isdecimal():
                return []
    return None


def type_at(message: Any, indexes: Sequence[int]) -> str:
    """The full name of the message at some indexes in the file of a message class, as Confluent's
    header has them: of the outer message in its file, then of each inside the one before. Entries
    of maps are not counted. Raises IndexError if there is none."""
    result, inside = None, list(message.DESCRIPTOR.file.message_types_by_name.values())
    for index in indexes:
        if index < 0:
            raise IndexError(index)
        result = inside[index]
        inside = [
            nested_type
            for nested_type in result.nested_types
            if not nested_type.GetOptions().map_entry
        ]
    if result is None:
        raise IndexError(0)
    return str(result.full_name)
