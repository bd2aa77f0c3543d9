"""What `./tidegauge test …` asks of pytest."""

import pytest

from services.console.checks import pytest_arguments

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
