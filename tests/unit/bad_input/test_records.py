"""Bytes that are no records, or nearly: one clear error each, and nothing else ever."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue, codec, protocol
from services.conductor.__main__ import parse_request
from services.evaluator.decode import decode as decode_columns
from services.runtime.events import Commands, Events
from tests.contract.avro_values import values_of
from tests.unit.bad_input.changed import JSON, changed
from tests.unit.bad_input.outcomes import count, fuzzed
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit

NAMES = st.sampled_from(codec.schema_names())
ANY_BYTES = st.binary(max_size=200)
AFTER_A_HEADER = st.builds(lambda name, rest: codec.header(name) + rest, NAMES, ANY_BYTES)
INPUTS = ("traffic_flow", "traffic_speed")


@st.composite
def spoilt(draw, names=NAMES):
    """A record with some bytes changed, cut off, added or repeated."""
    name = draw(names)
    data = bytearray(codec.encode(name, draw(values_of(json.loads(codec.schema_json(name))))))
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
        name, fields = codec.decode(data)
    except codec.DecodeError:
        count("codec", "refused")
    else:
        assert name in codec.schema_names()
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
    decoded, refused = decode_columns(INPUTS, values)
    places = [int(place) for part in decoded for place in part.places]
    places += [each.place for each in refused]
    assert sorted(places) == list(range(len(values)))
    assert all(each.reason for each in refused)
    for _ in refused:
        count("evaluator's columns", "refused")
    for _ in range(len(values) - len(refused)):
        count("evaluator's columns", "decoded")


class Message:
    """A message of Kafka with this value."""

    def __init__(self, value, key=None):
        self._value, self._key = value, key

    def value(self):
        return self._value

    def key(self):
        return self._key

    def error(self):
        return None

    def topic(self):
        return catalogue.CONTROL

    def partition(self):
        return 0

    def offset(self):
        return 7


class OneMessage:
    """A consumer that has one message."""

    def __init__(self, message):
        self._message = message

    def poll(self, _timeout_s):
        return self._message


class Kept:
    """A producer that keeps what it is given."""

    def __init__(self):
        self.sent = []

    def produce(self, topic, value, key, **_options):
        self.sent.append((topic, codec.decode(value)[1], key))

    def poll(self, _timeout_s):
        return 0

    def flush(self, _timeout_s):
        return 0


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
        assert found["command"] in protocol.COMMANDS
        count("commands", "obeyed")
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
    request = parse_request({"run_id": RUN_ID, "command": "run", "body": body}, events)
    ((_topic, event, _key),) = producer.sent
    if request is None:
        assert event["event"] == protocol.RUN_REFUSED
        assert "\n" not in json.loads(event["detail"])["reason"]
        count("requests", "refused")
    else:
        assert event["event"] == protocol.RUN_REQUESTED
        count("requests", "accepted")
