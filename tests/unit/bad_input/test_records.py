"""Bytes that are not records, or nearly records: one clear error each, and never another."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue, codec
from schemas.commands import Malformed, from_record
from schemas.events import RunRefused, RunRequested
from services.conductor.__main__ import announced
from services.evaluator.columnar.decode import decode as decode_columns
from services.evaluator.columnar.decode import decode_json_values
from services.runtime.events import Commands, Events
from tests.contract.avro_values import values_of
from tests.traffic import CODEC, RELEASED_NAMES
from tests.traffic import RELEASED as EVERY
from tests.unit.bad_input.changed import JSON, changed
from tests.unit.bad_input.outcomes import count, fuzzed
from tests.unit.kafka_clients import Kept, Message
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit

NAMES = st.sampled_from(RELEASED_NAMES)
ANY_BYTES = st.binary(max_size=200)
AFTER_A_HEADER = st.builds(lambda name, rest: EVERY.header(name) + rest, NAMES, ANY_BYTES)
INPUTS = ("traffic_flow", "traffic_speed")


@st.composite
def spoilt(draw, names=NAMES):
    """A record with some bytes changed, removed, added or repeated."""
    name = draw(names)
    data = bytearray(EVERY.encode(name, draw(values_of(json.loads(EVERY.schema_json(name))))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(("change", "cut", "add", "repeat")))
        if how == "change" and place < len(data):
            data[place] = draw(st.integers(0, 255))
        elif how == "cut":
            del data[place:]
        elif how == "add":
            data[place:place] = draw(st.binary(min_size=1, max_size=12))
        else:
            data[place:place] = data[:place]
    return bytes(data)


@fuzzed
@given(st.one_of(st.none(), ANY_BYTES, AFTER_A_HEADER, spoilt()))
def test_the_codec_gives_a_record_or_one_clear_error(data) -> None:
    try:
        name, fields = EVERY.decode(data)
    except codec.DecodeError:
        count("codec", "refused")
    else:
        assert name in RELEASED_NAMES
        assert isinstance(fields, dict)
        count("codec", "decoded")


@fuzzed
@given(
    st.lists(
        st.one_of(st.none(), ANY_BYTES, AFTER_A_HEADER, spoilt(st.sampled_from(INPUTS))),
        max_size=8,
    )
)
def test_columns_take_what_is_a_record_and_give_a_reason_for_the_rest(values) -> None:
    judge_columns("evaluator's columns", values, *decode_columns(CODEC, INPUTS, values))


def judge_columns(target, values, decoded, refused):
    """Every value is in exactly one place: in the columns, or rejected with a reason."""
    places = [int(place) for part in decoded for place in part.places]
    places += [each.place for each in refused]
    assert sorted(places) == list(range(len(values)))
    assert all(each.reason.encode() for each in refused)
    for _ in refused:
        count(target, "refused")
    for _ in range(len(values) - len(refused)):
        count(target, "decoded")


FLOW_RECORD = {
    "measurement_id": "site",
    "lane": "lane1",
    "num_lanes": 1,
    "latitude": 52.0,
    "longitude": 4.0,
    "observed_at": 1_767_268_800_000,
    "period_s": 60,
    "accuracy_percent": 90,
    "flow_vehicles_per_hour": 7,
    "sequence": 0,
    "run_id": RUN_ID,
    "scheduled_at": 1_767_268_800_000_000,
}
LONG_END = 2**63
ODD_VALUES = [
    ("num_lanes", 3_000_000_000, "num_lanes is an integer that does not fit into Avro's int"),
    ("num_lanes", -(2**31) - 1, "num_lanes is an integer that does not fit into Avro's int"),
    ("sequence", 2**70, "sequence is an integer that does not fit into Avro's long"),
    ("scheduled_at", LONG_END, "scheduled_at is an integer that does not fit into Avro's long"),
    ("latitude", 10**400, "latitude is an invalid double: OverflowError"),
    ("lane", "\ud800", "lane is an invalid string: UnicodeEncodeError"),
    ("num_lanes", True, "num_lanes is missing or has the wrong type"),
]


@pytest.mark.parametrize(
    ("member", "value", "reason"), ODD_VALUES, ids=[reason for _, _, reason in ODD_VALUES]
)
def test_a_json_record_that_avro_cannot_hold_is_refused_and_the_rest_is_decoded(
    member, value, reason
):
    whole, odd = (json.dumps(FLOW_RECORD | one).encode() for one in ({}, {member: value}))
    (decoded,), (refused,) = decode_json_values(CODEC, ("traffic_flow",), [whole, odd, whole])
    assert (decoded.places.tolist(), refused.place) == ([0, 2], 1)
    assert refused.reason.startswith(reason)


def test_json_nested_without_end_is_refused():
    deep = b'{"a":' * 100_000
    assert decode_json_values(CODEC, ("traffic_flow",), [deep])[1][0].reason.startswith("not JSON")


def test_the_largest_integers_of_avro_and_a_whole_number_for_a_fraction_are_taken():
    edges = {"num_lanes": 2**31 - 1, "sequence": -LONG_END, "latitude": 2**53 + 1}
    (decoded,), refused = decode_json_values(
        CODEC, ("traffic_flow",), [json.dumps(FLOW_RECORD | edges).encode()]
    )
    assert refused == []
    assert (decoded.ints("num_lanes")[0], decoded.ints("sequence")[0]) == (2**31 - 1, -LONG_END)
    assert decoded.floats("latitude")[0] == float(2**53)


BEYOND_AVRO = st.one_of(
    st.integers(2**30, 2**80), st.just(10**400), st.text(st.characters(categories=["Cs"]))
)


@st.composite
def odd_json(draw):
    """A record as JSON in which one value does not fit the Avro type."""
    member = draw(st.sampled_from(sorted(FLOW_RECORD)))
    return json.dumps(FLOW_RECORD | {member: draw(BEYOND_AVRO)})


@fuzzed
@given(
    st.lists(
        st.one_of(
            st.none(),
            ANY_BYTES,
            st.one_of(JSON.map(json.dumps), changed(FLOW_RECORD), odd_json()).map(str.encode),
        ),
        max_size=8,
    )
)
def test_columns_of_json_take_what_is_a_record_and_give_a_reason_for_the_rest(values) -> None:
    judge_columns("evaluator's columns of JSON", values, *decode_json_values(CODEC, INPUTS, values))


class OneMessage:
    """A consumer with one message."""

    def __init__(self, message):
        self._message = message

    def consume(self, _count, _timeout_s):
        return [self._message]


@fuzzed
@given(
    st.one_of(st.none(), ANY_BYTES, AFTER_A_HEADER, spoilt(st.just("control_command"))),
    st.one_of(st.none(), st.binary(max_size=20)),
)
def test_what_is_no_command_becomes_a_dead_letter_with_its_bytes(value, key) -> None:
    producer = Kept()
    events = Events(producer, "tests", lambda: 5)
    found = Commands(OneMessage(Message(value, key)), events).poll(0)
    if found is not None:
        assert isinstance(found, Malformed) == bool(producer.sent)
        count("commands", "dead letters" if producer.sent else "obeyed")
        return
    ((topic, letter, _key),) = producer.sent
    assert topic == catalogue.DEAD_LETTER
    assert (letter["value"], letter["key"], letter["offset"]) == (value, key, 7)
    assert letter["reason"]
    count("commands", "dead letters")


VALID_BODY = json.loads(a_request().model_dump_json())


@fuzzed
@given(st.one_of(st.text(max_size=60), JSON.map(json.dumps), changed(VALID_BODY)))
def test_a_request_that_is_none_is_refused_in_one_sentence(body) -> None:
    producer = Kept()
    events = Events(producer, "tests", lambda: 5)
    head = {"run_id": RUN_ID, "command_id": "1", "issued_at": 1, "producer": "console"}
    command = from_record(head | {"command": "run", "body": body})
    if isinstance(command, Malformed):
        assert "\n" not in command.reason
        count("requests", "refused")
        return
    request = announced(command.request, events)
    ((_topic, event, _key),) = producer.sent
    if request is None:
        assert event["event"] == RunRefused.name
        count("requests", "refused")
    else:
        assert event["event"] == RunRequested.name
        count("requests", "accepted")
