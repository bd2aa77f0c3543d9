"""Descriptor sets in Base64, as watch files have them, and a message of one."""

import base64

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from services.watcher.decoding import message_of


def set_of(file):
    """The descriptor set of a file."""
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(files.SerializeToString()).decode()


def file_of(name, **more):
    """A file of the package shop."""
    return descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", **more)


def add_field(message, name, number, kind=Field.TYPE_STRING, of="", label=Field.LABEL_OPTIONAL):
    """Add a field. of: the name of its type, if it is a message or an enum."""
    message.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)


def add_map(message, name, number, key, kind, of=""):
    """Add a map. key, kind: types of keys and values; of: as in `add_field`."""
    entry = f"{name.title().replace('_', '')}Entry"
    pairs = message.nested_type.add(name=entry, options={"map_entry": True})
    add_field(pairs, "key", 1, key)
    add_field(pairs, "value", 2, kind, of)
    whole = f".shop.{message.name}.{entry}"
    add_field(message, name, number, Field.TYPE_MESSAGE, whole, Field.LABEL_REPEATED)


def descriptors():
    """A file with an Order at a Site, with maps to texts and to messages."""
    file = file_of("shop.proto")
    add_field(file.message_type.add(name="Site"), "name", 1)
    order = file.message_type.add(name="Order")
    add_field(order, "id", 1, Field.TYPE_INT64)
    add_field(order, "site", 2, Field.TYPE_MESSAGE, ".shop.Site")
    add_map(order, "labels", 3, Field.TYPE_STRING, Field.TYPE_STRING)
    add_map(order, "sites", 4, Field.TYPE_BOOL, Field.TYPE_MESSAGE, ".shop.Site")
    return set_of(file)


PROTOBUF = {"schemas": [descriptors()], "message": "shop.Order"}


def protobuf():
    """An Order in bytes."""
    order = message_of(descriptors(), "shop.Order")(id=42)
    order.site.name = "north"
    order.labels["of"] = "l1"
    order.sites[True].name = "south"
    return order.SerializeToString()


def typed():
    """A file with First, and Order with the messages Line and, inside Line, Item; the entries of a
    map come before Line."""
    file = file_of("o.proto")

    def add(name, among):
        message = among.add(name=name)
        add_field(message, "id", 1)
        return message

    add("First", file.message_type)
    order = add("Order", file.message_type)
    add_map(order, "labels", 2, Field.TYPE_STRING, Field.TYPE_STRING)
    add("Item", add("Line", order.nested_type).nested_type)
    return set_of(file)


def wrapped():
    """A message with a wrapper and a timestamp."""
    google = "google/protobuf"
    file = file_of("w.proto", dependency=[f"{google}/wrappers.proto", f"{google}/timestamp.proto"])
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", "StringValue"), ("at", "Timestamp")), 1):
        add_field(order, name, number, Field.TYPE_MESSAGE, f".google.protobuf.{kind}")
    return set_of(file)


def with_enums():
    """A message with an enum: alone, repeated, and in a map."""
    file = file_of("e.proto")
    state = file.enum_type.add(name="State", options={"allow_alias": True})
    for name, number in (("NEW", 0), ("SHIPPED", 1), ("SENT", 1)):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    kind, of = Field.TYPE_ENUM, ".shop.State"
    add_field(order, "state", 1, kind, of)
    add_field(order, "earlier", 2, kind, of, Field.LABEL_REPEATED)
    add_map(order, "by_site", 3, Field.TYPE_STRING, kind, of)
    return set_of(file)
