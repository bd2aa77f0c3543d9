"""Identities, times and types of messages of Protobuf."""

import pytest

from schemas.watch import WatchedTopic
from services.watcher.decoding import message_of
from services.watcher.extracting import Extractor
from tests.unit.watcher.extracted import identities, not_concerned, of, windows
from tests.unit.watcher.protobuf_files import PROTOBUF, protobuf, typed, with_enums, wrapped
from tests.unit.watcher.records import message

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("path", "text"), [("value.labels.of", "l1"), ("value.sites.true.name", "south")]
)
def test_maps_of_a_message_have_their_keys_as_names(path, text):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    assert identities(topic, message("t", protobuf())) == (of(text), {})


@pytest.mark.parametrize("path", ["value.site", "value.sites", "value.sites.true"])
def test_a_message_is_no_identity(path):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    reason = "a part of its identity is null, a list or a record"
    assert identities(topic, message("t", protobuf())) == ([], {reason: 1})


@pytest.mark.parametrize("path", ["value.labels.none", "value.labels.of.more", "value.site.no"])
def test_a_path_that_a_message_does_not_have_is_a_reason(path):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    found = identities(topic, message("t", protobuf()))
    assert found == ([], {f"it has no field {path.removeprefix('value.')}": 1})


def in_frame(*varints):
    """A record o1 after Confluent's header with some varints in zigzag encoding."""
    return b"\0\0\0\0\x07" + bytes(2 * one for one in varints) + b"\x0a\x02o1"


@pytest.mark.parametrize(
    ("varints", "name"),
    [
        ((0,), "shop.First"),
        ((1, 0), "shop.First"),
        ((1, 1), "shop.Order"),
        ((2, 1, 0), "shop.Order.Line"),
        ((3, 1, 0, 0), "shop.Order.Line.Item"),
    ],
)
def test_the_indexes_of_a_frame_say_which_message_it_has(varints, name):
    fields = {"topic": "t", "format": "protobuf-confluent", "identity": ["value.id"]}
    every = ("shop.First", "shop.Order", "shop.Order.Line", "shop.Order.Line.Item")
    for watched in every:
        topic = fields | {"schemas": [typed()], "message": watched}
        extractor = Extractor(WatchedTopic.model_validate(topic), None)
        found = extractor.extract([message("t", in_frame(*varints))])
        is_mine = watched == name
        assert found.hash.tolist() == (of("o1") if is_mine else [])
        assert [*found.others] == ([] if is_mine else [f"its type is {name}"])
        assert not found.refused


@pytest.mark.parametrize("varints", [(1, 2), (2, 0, 0), (1, -1), (-1,), (101,)])
def test_indexes_of_no_message_are_a_reason(varints):
    frame = b"\0\0\0\0\x07" + b"".join(_zigzag(one) for one in varints) + b"\x0a\x02o1"
    topic = {"format": "protobuf-confluent", "identity": ["value.id"], "schemas": [typed()]}
    found, refused = identities(topic | {"message": "shop.First"}, message("t", frame))
    assert (found, sum(refused.values())) == ([], 1)


def _zigzag(number):
    coded = (number << 1) ^ (number >> 63)
    return bytes([coded]) if coded < 128 else bytes([coded & 127 | 128, coded >> 7])


def test_the_header_of_a_message_has_its_indexes():
    topic = {"format": "protobuf-confluent", "identity": ["value.id"], "schemas": [typed()]}
    record = message(
        "t", b"\x0a\x02o1", headers=[("__value_schema_id", b"\x01" + bytes(16) + b"\x02\x02")]
    )
    assert identities(topic | {"message": "shop.Order"}, record) == (of("o1"), {})
    assert not_concerned(topic | {"message": "shop.First"}, record) == (
        [],
        {"its type is shop.Order": ("other_type", 1)},
    )


def test_wrappers_and_timestamps_of_protobuf_are_values():
    files = {"format": "protobuf", "schemas": [wrapped()], "message": "shop.Order"}
    order = message_of(wrapped(), "shop.Order")()
    order.id.value = "o1"
    order.at.seconds, order.at.nanos = 7, 5_999
    record = message("t", order.SerializeToString(), b"k")
    for path in ("value.id", "value.id.value"):
        topic = files | {"identity": [path], "time": "value.at", "time_format": "iso"}
        assert windows(topic, record) == (of("o1"), [(7_000_005,)], [])
    empty = message("t", b"", b"k")
    reason = "a part of its identity is null, a list or a record"
    assert identities(files | {"identity": ["value.id"]}, empty) == ([], {reason: 1})


def test_enums_of_protobuf_are_their_names():
    files = {"format": "protobuf", "schemas": [with_enums()], "message": "shop.Order"}
    order = message_of(with_enums(), "shop.Order")(state=1, earlier=[0, 1, 7], by_site={"a": 1})
    record = message("t", order.SerializeToString(), b"k")
    for path, text in (
        ("value.state", "SHIPPED"),
        ("value.earlier.0", "NEW"),
        ("value.earlier.1", "SHIPPED"),
        ("value.earlier.2", "7"),
        ("value.by_site.a", "SHIPPED"),
    ):
        assert identities(files | {"identity": [path]}, record) == (of(text), {})
    shipped = files | {"identity": ["key"], "where": {"value.state": "SHIPPED"}}
    unset = message("t", b"", b"k")
    assert identities(shipped, record, unset)[0] == of("k")
