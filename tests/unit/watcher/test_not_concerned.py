"""Records that do not concern a watch: tombstones, deletes, other types."""

import json

import pytest

from tests.unit.watcher.extracted import BY_VALUE, identities, not_concerned, of
from tests.unit.watcher.records import message

pytestmark = pytest.mark.unit


def test_a_record_without_a_value_is_a_tombstone_if_its_identity_is_in_values():
    a_record = message("t", b'{"id": 1}', b"k")
    tombstone = message("t", None, b"k")
    one = ("tombstone", 1)
    assert not_concerned(BY_VALUE, a_record, tombstone) == (of("1"), {"it has no value": one})
    assert not_concerned({"format": "json"}, a_record, tombstone) == (of("k", "k"), {})
    by_key = {"format": "json", "by": "value.id"}
    assert not_concerned(by_key, a_record, tombstone) == (of("k", "k"), {})


def change(operation, **rows):
    return {"before": None, "after": None, **rows, "op": operation, "ts_ms": 1}


@pytest.mark.parametrize("wrap", [lambda event: event, lambda event: {"payload": event}])
def test_a_change_event_without_a_state_after_it_is_a_delete(wrap):
    path = ["value.after.id"] if wrap(1) == 1 else ["value.payload.after.id"]
    events = [
        change("c", after={"id": 7}),
        change("d", before={"id": 7}),
        change("t"),
    ]
    messages = [message("t", json.dumps(wrap(event)).encode()) for event in events]
    found = not_concerned({"format": "json", "identity": path}, *messages)
    assert found == (of("7"), {"it is a delete": ("delete", 2)})


def test_another_record_without_a_state_after_it_is_refused():
    topic = {"format": "json", "identity": ["value.after.id"]}
    messages = [
        message("t", json.dumps(event).encode())
        for event in (change("c"), {"after": None}, {"op": "d"}, change("d", after={"no": 1}))
    ]
    assert identities(topic, *messages) == ([], {"it has no field after.id": 4})


EVENTS = {
    "21": '{"type": "record", "name": "OrderPlaced", "namespace": "shop", '
    '"fields": [{"name": "id", "type": "string"}]}',
    "22": '{"type": "record", "name": "Paid", "namespace": "shop", '
    '"fields": [{"name": "amount", "type": "double"}]}',
    "23": '[{"type": "record", "name": "shop.OrderPlaced", "fields": '
    '[{"name": "id", "type": "string"}]}, "string", "null"]',
}


def test_one_type_of_avro_records_is_watched():
    topic = {"format": "avro-confluent", "identity": ["value.id"], "schema_ids": EVENTS}
    messages = [
        message("t", b"\0\0\0\0\x15\x04o1"),
        message("t", b"\0\0\0\0\x16" + bytes(8)),
        message("t", b"\0\0\0\0\x17\x00\x04o2"),
        message("t", b"\0\0\0\0\x17\x02\x04o3"),
        message("t", b"\0\0\0\0\x17\x04"),
    ]
    others = {f"its type is {name}": ("other_type", 1) for name in ("shop.Paid", "string", "null")}
    found = not_concerned(topic | {"message": "shop.OrderPlaced"}, *messages)
    assert found == (of("o1", "o2"), others)
    by_key = topic | {"message": "shop.Paid", "identity": ["key"]}
    paid = message("t", b"\0\0\0\0\x16" + bytes(8), b"p1")
    assert not_concerned(by_key, paid, messages[0])[0] == of("p1")


@pytest.mark.parametrize("branch", [b"\x06", b"\x01", b""])
def test_a_branch_that_a_union_does_not_have_is_a_reason(branch):
    topic = {"format": "avro-confluent", "identity": ["value.id"], "schema_ids": EVENTS}
    found, refused = identities(topic, message("t", b"\0\0\0\0\x17" + branch))
    assert (found, sum(refused.values())) == ([], 1)


@pytest.mark.parametrize(
    ("where", "ids", "reasons"),
    [
        ({"value.type": "placed"}, ["1"], ["its value.type is paid", "its value.type is no text"]),
        ({"value.type": ["placed", "paid"]}, ["1", "2"], ["its value.type is no text"]),
        ({"value.n": 5}, ["1"], ["its value.n is no text"]),
        ({"value.ok": "true"}, ["2"], ["its value.ok is no text"]),
        ({"value.n": True}, ["1"], ["it has no value.n"]),
        ({"value.n": False}, ["2", "3"], ["it has a value.n"]),
        ({"header.h": "x"}, ["3"], ["its header.h is no text"]),
        ({"value.type": "placed", "value.n": False}, [], None),
    ],
)
def test_records_are_chosen_by_values(where, ids, reasons):
    rows = [{"id": 1, "type": "placed", "n": 5.0}, {"id": 2, "type": "paid", "ok": True}]
    messages = [message("t", json.dumps(row).encode()) for row in rows]
    messages.append(message("t", b'{"id": 3, "type": null}', headers=[("h", b"x")]))
    found, others = not_concerned(BY_VALUE | {"where": where}, *messages)
    assert found == of(*ids)
    assert {kind for kind, _ in others.values()} == {"other_type"}
    assert reasons is None or [*others] == reasons


def test_what_is_left_out_has_at_most_some_twenty_reasons():
    rows = [message("t", json.dumps({"id": 1, "type": f"t{n}"}).encode()) for n in range(50)]
    found, others = not_concerned(
        BY_VALUE | {"where": {"value.type": "t0"}}, *rows, message("t", None)
    )
    assert found == of("1")
    assert others.pop("it has no value") == ("tombstone", 1)
    assert (len(others), others["other reasons"]) == (21, ("other_type", 29))
