"""The state of a conductor after a restart."""

import json
from pathlib import Path

import pytest
import structlog

from services.conductor.suites.suite_state import SuitePlace, SuiteState
from tests.unit.conductor.suites import a_step, a_suite

pytestmark = pytest.mark.unit

PLACE = SuitePlace(round=3, step=1, began_ms={"x": 5}, runs=7, failures=1)


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    notes = SuiteState(tmp_path, "stack")
    assert (notes.run_id, notes.suite(), notes.place("nightly")) == ("", None, SuitePlace())


def test_run_suite_and_place_are_there_again_after_a_restart(tmp_path: Path) -> None:
    suite = a_suite(a_step(100))
    before = SuiteState(tmp_path, "stack")
    before.keep_suite(suite)
    before.keep_place("nightly", PLACE)
    before.begin_run("run-1", 17)
    after = SuiteState(tmp_path, "stack")
    assert (after.run_id, after.suite(), after.place("nightly")) == ("run-1", suite, PLACE)
    assert (after.run_began_ms, after.run_is_of_this_stack) == (17, True)
    assert not SuiteState(tmp_path, "another start of the stack").run_is_of_this_stack
    after.end_run()
    assert SuiteState(tmp_path, "stack").run_id == ""


def test_a_suite_asked_for_by_command_ends_with_the_stack_but_its_place_stays(
    tmp_path: Path,
) -> None:
    before = SuiteState(tmp_path, "stack")
    before.keep_suite(a_suite(a_step(100)))
    before.keep_place("nightly", PLACE)
    other = SuiteState(tmp_path, "another start of the stack")
    assert (other.suite(), other.place("nightly")) == (None, PLACE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "conductor.json: It is not valid JSON: EOF while parsing a value at line 1 column 0"),
        (
            b"{",
            "conductor.json: It is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (b"\0" * 300, "conductor.json: It is not valid JSON: expected value at line 1 column 1"),
        (b"\xff\xfe", "conductor.json: It is not valid JSON: expected value at line 1 column 1"),
        (
            b"[" * 100_000,
            "conductor.json: It is not valid JSON: recursion limit exceeded at line 1 column",
        ),
        (b"[]", "conductor.json: It must be a table"),
        (b'{"run_id": 7}', "run_id: It must be text"),
        (b'{"run_began_ms": "x"}', "run_began_ms: It must be a whole number"),
        (b'{"places": []}', "places: It must be a table"),
    ],
)
def test_a_file_that_makes_no_sense_is_set_aside_and_told(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    (tmp_path / "conductor.json").write_bytes(data)
    with structlog.testing.capture_logs() as log:
        notes = SuiteState(tmp_path, "stack")
    aside = tmp_path / "conductor.unreadable"
    assert [(each["event"], each["path"]) for each in log] == [("notes_set_aside", str(aside))]
    assert log[0]["reason"].startswith(reason)
    assert aside.read_bytes() == data
    assert (notes.run_id, notes.suite(), notes.place("nightly")) == ("", None, SuitePlace())
    notes.keep_place("nightly", PLACE)
    assert SuiteState(tmp_path, "stack").place("nightly") == PLACE


def test_a_file_cut_off_anywhere_is_all_or_nothing(tmp_path: Path) -> None:
    before = SuiteState(tmp_path, "stack")
    before.keep_suite(a_suite(a_step(100)))
    before.keep_place("nightly", PLACE)
    before.begin_run("run-1", 17)
    path = tmp_path / "conductor.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        notes = SuiteState(tmp_path, "stack")
        assert (notes.run_id, notes.suite(), notes.place("nightly")) == ("", None, SuitePlace())
    path.write_bytes(whole)
    assert SuiteState(tmp_path, "stack").place("nightly") == PLACE


@pytest.mark.parametrize(
    "place",
    [[], 7, {"round": "3"}, {"round": 0}, {"step": -1}, {"began_ms": {"x": None}}, {"runs": 1.5}],
)
def test_a_place_that_makes_no_sense_is_the_beginning_and_others_stay(
    tmp_path: Path, place: object
) -> None:
    before = SuiteState(tmp_path, "stack")
    before.keep_place("nightly", PLACE)
    fields = json.loads((tmp_path / "conductor.json").read_text())
    fields["places"]["weekly"] = place
    (tmp_path / "conductor.json").write_text(json.dumps(fields))
    notes = SuiteState(tmp_path, "stack")
    assert (notes.place("weekly"), notes.place("nightly")) == (SuitePlace(), PLACE)


def test_the_file_does_not_grow_with_suites_that_come_and_go(tmp_path: Path) -> None:
    notes = SuiteState(tmp_path, "stack")
    for number in range(120):
        notes.keep_place(f"suite-{number}", PLACE)
    assert notes.place("suite-19") == SuitePlace()
    assert notes.place("suite-20") == notes.place("suite-119") == PLACE
