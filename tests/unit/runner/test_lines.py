"""Output of a program: lines of the contract, others, and floods of them."""

import json

import pytest

from schemas.engine import FailedLine, ProgressLine, ReadyLine, TasksLine
from services.runner.processes import (
    MAX_LINE_BYTES,
    MAX_LOGGED_CHARACTERS,
    MAX_LOGGED_LINES,
    Lines,
    dead_letter,
)

pytestmark = pytest.mark.unit

READY = b'{"event": "ready"}\n'


def test_each_line_is_one_event():
    said = (
        READY
        + b'{"event": "progress", "stage": "parse", "input_rows": 3}\n'
        + b'{"event": "tasks", "delays_ms": [3, 4], "tasks": [17, 2]}\n'
        + b'{"event": "failed", "reason": "no broker"}\n'
    )
    assert Lines().feed(said) == (
        [
            ReadyLine(event="ready"),
            ProgressLine(event="progress", stage="parse", input_rows=3),
            TasksLine(event="tasks", delays_ms=(3, 4), tasks=(17, 2)),
            FailedLine(event="failed", reason="no broker"),
        ],
        [],
    )


def test_a_value_that_does_not_decode_is_a_dead_letter_with_where_it_was():
    told = {"event": "undecodable", "topic": "a", "partition": 2, "offset": 7}
    said = json.dumps(told | {"value": "AAE=", "bytes": 9}) + "\n"
    ((line,), logged) = Lines().feed(said.encode())
    assert logged == []
    letter = dead_letter(line, "x")
    assert (letter.topic, letter.partition, letter.offset) == ("a", 2, 7)
    assert (letter.key, letter.value) == (None, b"\x00\x01")
    assert (
        letter.reason == "x: the value cannot be decoded; its value of 9 bytes was truncated to 2"
    )


def test_a_line_may_come_in_pieces():
    lines = Lines()
    for byte in READY[:-1]:
        assert lines.feed(bytes([byte])) == ([], [])
    assert lines.feed(b"\n") == ([ReadyLine(event="ready")], [])


@pytest.mark.parametrize(
    ("line", "logged"),
    [
        (b"hello\n", "hello"),
        (
            b'{"event": "tasks", "delays_ms": [3, 4], "tasks": [17]}\n',
            "tasks: delays_ms and tasks must have the same length",
        ),
        (b"\xff\n", "\ufffd"),
        (b'{"event": "rea\n', "not a line of the contract"),
        (b'{"event": "up"}\n', "not a line of the contract"),
        (b'{"event": "ready", "more": 1}\n', "not a line of the contract (ready.more: "),
        (b'{"event": "progress", "stage": "parse"}\n', "progress.input_rows: It is missing"),
        (b'{"event": "progress", "stage": "parse", "input_rows": 1e999}\n', "not a line of"),
        (b'{"event": "progress", "stage": "../x", "input_rows": 1}\n', "progress.stage: "),
        (b'{"event": "progress", "stage": "a", "input_rows": 1, "watermark": 9e99}\n', "not a"),
        (b'{"event": "failed", "reason": 7}\n', "failed.reason: "),
        (b'{"event": "undecodable", "topic": "a", "value": 7}\n', "undecodable.value: "),
        (b"{" * 100_000 + b"\n", "not a line of the contract"),
    ],
)
def test_what_is_no_line_of_the_contract_goes_to_the_log_with_the_reason(line, logged):
    found, (text,) = Lines().feed(line)
    assert found == []
    assert logged in text
    assert len(text) <= MAX_LOGGED_CHARACTERS


def test_empty_lines_are_nothing():
    assert Lines().feed(b"\n \n\r\n") == ([], [])


def test_a_line_without_an_end_is_not_kept_and_the_next_is_heard():
    lines = Lines()
    for _ in range(100):
        assert lines.feed(b"x" * 65_536) == ([], [])
    assert len(lines._rest) <= MAX_LINE_BYTES
    found, logged = lines.feed(b"\n" + READY)
    assert found == [ReadyLine(event="ready")]
    assert logged == ["a line of more than 262144 bytes is left out"]


def test_a_flood_of_other_lines_is_cut_and_events_are_still_heard():
    lines = Lines()
    found, logged = lines.feed(b"nothing\n" * 5_000 + READY)
    assert found == [ReadyLine(event="ready")]
    assert logged == ["nothing"] * MAX_LOGGED_LINES + [
        "further lines of standard output are left out"
    ]


def test_a_long_reason_is_no_line():
    line = json.dumps({"event": "failed", "reason": "x" * 10_001}).encode() + b"\n"
    found, (text,) = Lines().feed(line)
    assert found == []
    assert "at most 10000 characters" in text
