"""Encoded records decode to the same values; other data are rejected with a reason."""

import io
import json
import math
from contextlib import suppress

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from tests.contract.avro_values import values_of
from tests.traffic import RELEASED as EVERY
from tests.traffic import RELEASED_NAMES as NAMES

pytestmark = pytest.mark.contract

SCHEMAS = {name: json.loads(EVERY.schema_json(name)) for name in NAMES}
COMMAND = {
    "command_id": "1",
    "run_id": "r",
    "issued_at": 1,
    "producer": "p",
    "command": "stop",
    "body": "{}",
}
# Header of control_command v1; then strings as zigzag length and UTF-8, and 1 as zigzag 2.
COMMAND_BYTES = bytes.fromhex("c301e4ae675a35391b57") + b"\x021\x02r\x02\x02p\x08stop\x04{}"


def test_a_command_has_these_bytes():
    assert EVERY.encode("control_command", COMMAND) == COMMAND_BYTES


def test_these_bytes_are_that_command():
    assert EVERY.decode(COMMAND_BYTES) == ("control_command", COMMAND)


def test_a_record_of_another_name_is_refused_where_one_name_is_wanted():
    assert EVERY.decode_as("control_command", COMMAND_BYTES) == COMMAND
    with pytest.raises(codec.DecodeError, match=r"^a control_command is not a dead_letter$"):
        EVERY.decode_as("dead_letter", COMMAND_BYTES)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_record_comes_back_as_it_was(name, data):
    record = data.draw(values_of(SCHEMAS[name]))
    encoded = EVERY.encode(name, record)
    assert encoded[:10] == EVERY.header(name)
    assert EVERY.decode(encoded) == (name, record)


def test_not_a_number_comes_back():
    record = {
        "run_id": "r",
        "measurement_id": "m",
        "lane": "lane1",
        "num_lanes": 1,
        "observed_at": 0,
        "flow_vehicles_per_hour": 1,
        "speed_km_per_hour": math.nan,
    }
    assert math.isnan(EVERY.decode(EVERY.encode("output_join", record))[1]["speed_km_per_hour"])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_record_cut_short_anywhere_is_refused(name, data):
    whole = EVERY.encode(name, data.draw(values_of(SCHEMAS[name])))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(codec.DecodeError):
        EVERY.decode(whole[:cut])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_bytes_after_the_end_are_refused(name, data):
    whole = EVERY.encode(name, data.draw(values_of(SCHEMAS[name])))
    with pytest.raises(codec.DecodeError, match=f"^{name} v[1-9] has trailing bytes$"):
        EVERY.decode(whole + data.draw(st.binary(min_size=1, max_size=9)))


@pytest.mark.parametrize("name", sorted(codec.JSON_FIELDS))
@pytest.mark.parametrize("text", ["", "no", "[]", "1", "null", '{"a": 1', "[" * 100_000])
@settings(max_examples=1, deadline=None)
@given(data=st.data())
def test_a_text_that_is_no_json_object_where_one_belongs_is_refused(name, text, data):
    record = data.draw(values_of(SCHEMAS[name])) | {codec.JSON_FIELDS[name]: text}
    with pytest.raises(codec.DecodeError, match=f"^{name} v[12]: detail is not a JSON object$"):
        EVERY.decode(EVERY.encode(name, record))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(datum=st.binary(max_size=80))
def test_any_bytes_after_a_known_header_are_a_record_or_refused(name, datum):
    with suppress(codec.DecodeError):  # any other error fails the test
        found, record = EVERY.decode(EVERY.header(name) + datum)
        assert found == name
        assert set(record) == {field["name"] for field in SCHEMAS[name]["fields"]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "not in Avro single-object encoding (marker C3 01 missing)"),
        (b"", "not in Avro single-object encoding (marker C3 01 missing)"),
        (b'{"run_id": "r"}', "not in Avro single-object encoding (marker C3 01 missing)"),
        (COMMAND_BYTES[:9], "not in Avro single-object encoding (marker C3 01 missing)"),
        (b"\xc3\x01" + b"\x00" * 8 + b"x", "unknown schema fingerprint 0000000000000000"),
    ],
)
def test_what_is_not_of_ours_is_refused_with_the_reason(data, reason):
    with pytest.raises(codec.DecodeError) as refused:
        EVERY.decode(data)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("a field is missing", {"body": None}),
        ("a field has another type", {"issued_at": "now"}),
    ],
)
def test_a_record_that_does_not_fit_is_not_written(why, change):
    with pytest.raises((ValueError, TypeError)):
        EVERY.encode("control_command", COMMAND | change)


def test_a_record_without_a_field_that_has_no_default_is_not_written():
    with pytest.raises((ValueError, TypeError)):
        EVERY.encode("control_command", {k: v for k, v in COMMAND.items() if k != "body"})


def test_an_unknown_name_is_refused():
    with pytest.raises(KeyError, match="no schema named 'nothing'"):
        EVERY.schema("nothing")


def test_the_reason_is_one_short_line_without_the_address_of_an_object():
    error = TypeError(f"cannot read <object at 0x7f{'0' * 10}>\nof {'x' * 500}")
    said = codec.said_by(error)
    assert said.startswith("TypeError: cannot read <object> of xxx")
    assert len(said) == 200
    assert codec.said_by(EOFError()) == "EOFError"


RESOURCES = {
    "run_id": "",
    "time": 0,
    "producer": "collector",
    "service": "store",
    "pipeline": "",
    "interval_s": 1.0,
    "cpu_seconds": 0.5,
    "memory_bytes": 1,
    "processes": 1,
    "threads": 1,
}


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63 - 1])
def test_an_int_beyond_32_bits_is_neither_written_nor_read(value) -> None:
    with pytest.raises(ValueError, match=f"threads {value} does not fit into Avro's int"):
        EVERY.encode("results_resources", RESOURCES | {"threads": value})
    newest = EVERY.schema("results_resources")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, newest.parsed, RESOURCES | {"threads": value})
    with pytest.raises(codec.DecodeError, match=f"v{newest.version}: threads {value} does not fit"):
        EVERY.decode(newest.header + out.getvalue())


def test_an_array_of_ints_is_held_to_32_bits() -> None:
    arrays = {"phases": [""], "verdicts": [""], "partitions": [2**31], "offsets": [0]}
    names = ("appended_ms", "latest_input_ms", "mean_input_ms", "scheduled_us")
    times = {name: [0] for name in names}
    head = dict.fromkeys(("run_id", "producer", "pipeline", "stage"), "")
    with pytest.raises(ValueError, match="partitions has values that do not fit"):
        EVERY.encode("results_pairs", head | {"time": 0} | arrays | times)
