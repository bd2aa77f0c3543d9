"""The arguments that `./tidegauge test …` passes to pytest."""

import pytest

from services.console.checks import FOLDERS, pytest_arguments
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["faults"], ["-m", "faults"]),
        (["fresh", "-x"], ["-m", "fresh", "-x"]),
        (["unit", "tests/unit/store"], ["-m", "unit", "tests/unit/store"]),
        (["-m", "unit"], ["-m", "unit"]),
        (["tests/unit", "faults"], ["tests/unit", "faults"]),
        ([], []),
    ],
)
def test_a_kind_of_tests_in_front_selects_it(given: list[str], asked: list[str]) -> None:
    assert pytest_arguments(given) == asked


def test_every_folder_of_tests_is_run_but_those_that_take_long() -> None:
    there = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert {path.parts[1] for path in there} - {"faults", "engines"} == set(FOLDERS)
