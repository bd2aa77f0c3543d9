"""What a conductor knows after a restart."""

from pathlib import Path

import pytest

from services.conductor.suites.notes import Notes
from services.conductor.suites.schedule import Place
from tests.unit.conductor.suites import a_step, a_suite

pytestmark = pytest.mark.unit

PLACE = Place(round=3, step=1, began_ms={"x": 5}, runs=7, failures=1)


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "stack")
    assert (notes.run_id, notes.suite(), notes.place("nightly")) == ("", None, Place())


def test_run_suite_and_place_are_there_again_after_a_restart(tmp_path: Path) -> None:
    suite = a_suite(a_step(100))
    before = Notes(tmp_path, "stack")
    before.keep_suite(suite)
    before.keep_place("nightly", PLACE)
    before.begin_run("run-1", 17)
    after = Notes(tmp_path, "stack")
    assert (after.run_id, after.suite(), after.place("nightly")) == ("run-1", suite, PLACE)
    assert (after.run_began_ms, after.run_is_of_this_stack) == (17, True)
    assert not Notes(tmp_path, "another start of the stack").run_is_of_this_stack
    after.end_run()
    assert Notes(tmp_path, "stack").run_id == ""


def test_a_suite_asked_for_by_command_ends_with_the_stack_but_its_place_stays(
    tmp_path: Path,
) -> None:
    before = Notes(tmp_path, "stack")
    before.keep_suite(a_suite(a_step(100)))
    before.keep_place("nightly", PLACE)
    other = Notes(tmp_path, "another start of the stack")
    assert (other.suite(), other.place("nightly")) == (None, PLACE)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"run_id": 7, "run_began_ms": "x", "places": {"nightly": {"x": 1}}}']
)
def test_a_file_that_makes_no_sense_counts_as_little(tmp_path: Path, text: str) -> None:
    (tmp_path / "conductor.json").write_text(text)
    notes = Notes(tmp_path, "stack")
    assert (notes.suite(), notes.place("nightly")) == (None, Place())
    assert notes.run_began_ms == 0


def test_the_file_does_not_grow_with_suites_that_come_and_go(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "stack")
    for number in range(120):
        notes.keep_place(f"suite-{number}", PLACE)
    assert notes.place("suite-19") == Place()
    assert notes.place("suite-20") == notes.place("suite-119") == PLACE
