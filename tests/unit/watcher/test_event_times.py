"""Event times and windows in every format."""

import json

import pytest

from services.watcher.extracting import microseconds
from services.watcher.schema_ids import UndecodableError
from tests.unit.watcher.extracted import of, windows
from tests.unit.watcher.records import datum, message

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "written", "expected"),
    [
        (1_700_000_000_123, "ms", 1_700_000_000_123_000),
        ("1700000000123", "ms", 1_700_000_000_123_000),
        (b"1700000000123", "ms", 1_700_000_000_123_000),
        (1_700_000_000, "s", 1_700_000_000_000_000),
        (1_700_000_000.25, "s", 1_700_000_000_250_000),
        (1_700_000_000_123_456, "us", 1_700_000_000_123_456),
        (-1.5, "us", -2),
        (1_700_000_000_123_456_789, "ns", 1_700_000_000_123_456),
        ("1700000000123456999", "ns", 1_700_000_000_123_456),
        (-1, "ns", -1),
        ("2023-11-14T22:13:20Z", "iso", 1_700_000_000_000_000),
        ("2023-11-14T23:13:20.123+01:00", "iso", 1_700_000_000_123_000),
        ("2023-11-14 22:13:20.000001", "iso", 1_700_000_000_000_001),
    ],
)
def test_a_time_is_microseconds_since_1970(value, written, expected):
    assert microseconds(value, written) == expected


@pytest.mark.parametrize(
    ("value", "written", "why"),
    [
        (None, "ms", "not a number"),
        (True, "ms", "not a number"),
        ("soon", "s", "not a number"),
        (float("nan"), "s", "not a number"),
        (float("inf"), "s", "too far"),
        ("1e99999", "ms", "too far"),
        (1 << 70, "us", "too far"),
        (1_700_000_000_123, "iso", "ISO"),
        ("tomorrow", "iso", "ISO"),
    ],
)
def test_what_is_no_time_is_refused(value, written, why):
    with pytest.raises(UndecodableError, match=why):
        microseconds(value, written)


def test_a_key_can_end_with_the_start_of_its_window():
    topic = {"key_window": "time", "window_ms": 1_500}
    keys = [b"s" + (1_000).to_bytes(8, "big"), b"short"]
    found = windows(topic, *(message("t", None, key) for key in keys))
    why = "its key of 5 bytes does not end with a window"
    assert found == (of("s"), [(1_000_000, 2_500_000)], [why])
    numbers = topic | {"key": "int"}
    key = (7).to_bytes(4, "big") + (1_000).to_bytes(8, "big")
    assert windows(numbers, message("t", None, key)) == (of("7"), [(1_000_000, 2_500_000)], [])


def test_a_key_can_end_with_its_session():
    """As the session serialiser of Kafka Streams writes it: the last millisecond, then the
    first."""
    topic = {"key_window": "session", "key": "json", "identity": ["key.id"]}
    key = b'{"id": "s"}' + (3_000).to_bytes(8, "big") + (1_000).to_bytes(8, "big")
    assert windows(topic, message("t", None, key)) == (of("s"), [(1_000_000, 3_001_000)], [])


def test_a_key_can_end_with_its_window_in_a_store():
    """As Kafka Streams writes it to the changelog of a window store: the start, then a number that
    distinguishes duplicates."""
    topic = {"key_window": "store", "window_ms": 1_500, "key": "int"}
    tail = (1_000).to_bytes(8, "big") + (3).to_bytes(4, "big")
    keys = [(7).to_bytes(4, "big") + tail, tail[1:]]
    found = windows(topic, *(message("t", None, key) for key in keys))
    why = "its key of 11 bytes does not end with a window"
    assert found == (of("7"), [(1_000_000, 2_500_000)], [why])


@pytest.mark.parametrize(
    ("settings", "copies", "after"),
    [
        ({"key_window": "time", "window_ms": 5}, 1, b""),
        ({"key_window": "session"}, 2, b""),
        ({"key_window": "store", "window_ms": 5}, 1, bytes(4)),
    ],
)
@pytest.mark.parametrize("start", [b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)])
def test_a_window_that_is_too_far_from_now_is_a_reason(settings, copies, after, start):
    tail = start * copies + after
    reason = "its time is too far from now"
    assert windows(settings, message("t", None, b"k" + tail)) == ([], [], [reason])


def test_the_event_time_can_be_the_timestamp_of_the_record():
    topic = {"time": "timestamp", "time_format": "iso"}
    assert windows(topic, message("t", None, b"k", ms=1_500)) == (of("k"), [(1_500_000,)], [])


@pytest.mark.parametrize(("side", "window"), [("start", (7_000, 9_000)), ("end", (5_000, 7_000))])
def test_a_window_can_have_one_end_and_a_length(side, window):
    topic = {"format": "json", "identity": ["value.id"], side: "value.at", "window_ms": 2}
    found = windows(topic, message("t", b'{"id": 1, "at": 7}'))
    assert found == (of("1"), [window], [])


@pytest.mark.parametrize(
    ("logical", "number", "us"),
    [
        ("timestamp-millis", 7, 7_000),
        ("timestamp-micros", 7, 7),
        ("timestamp-nanos", 7_999, 7),
        ("local-timestamp-millis", -1, -1_000),
        ("time-micros", 7, 7_000_000),
    ],
)
def test_a_type_with_a_unit_of_its_own_is_read_by_it(logical, number, us):
    schema = {"type": "long", "logicalType": logical}
    record = {"type": "record", "name": "R", "fields": [{"name": "at", "type": schema}]}
    topic = {"format": "avro", "schemas": [json.dumps(record)], "time": "value.at"}
    plain = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}
    a_record = message("t", datum(plain, {"at": number}), b"k")
    assert windows(topic | {"time_format": "s"}, a_record)[1] == [(us,)]
