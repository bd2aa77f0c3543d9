"""The arguments that `./tidegauge test …` passes to pytest."""

import pytest

from services.console.__main__ import main
from services.console.checks import FOLDERS, SHARED, processes, pytest_arguments
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["faults", "-x"], ["-m", "faults", "-x"]),
        (["fresh", "-x"], ["-m", "fresh", "-x"]),
        (["unit", "tests/unit/store"], ["-m", "unit", "tests/unit/store"]),
        (["-m", "unit"], ["-m", "unit"]),
        (["tests/unit", "faults"], ["tests/unit", "faults"]),
    ],
)
def test_a_kind_of_tests_in_front_selects_it(given: list[str], asked: list[str]) -> None:
    assert pytest_arguments(given) == asked


def test_all_tests_share_processes_also_with_options() -> None:
    folders = [f"tests/{folder}" for folder in FOLDERS]
    shared = ["-n", str(processes()), *SHARED]
    assert pytest_arguments([]) == [*shared, *folders]
    assert pytest_arguments(["-x", "--durations=9"]) == [*shared, "-x", "--durations=9", *folders]
    assert pytest_arguments(["faults"]) == ["-m", "faults", "-n", "2", *SHARED, "tests"]


@pytest.mark.parametrize("before", [[], ["-q"], ["--data", "up"], ["--no-color"]])
def test_options_of_the_command_may_come_before_test(
    monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("services.console.checks.run_tests", lambda one: asked.append(one) or 0)
    for given in (["soak", "-x", "--data", "d"], ["--", "-h"], ["unit", "--help"], []):
        assert main([*before, "test", *given]) == 0
        assert asked.pop() == given


def test_every_folder_of_tests_is_run_but_those_that_take_long() -> None:
    there = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    slow = {"faults", "engines", "clients", "deploy"}
    assert {path.parts[1] for path in there} - slow == set(FOLDERS)
