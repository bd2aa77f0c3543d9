"""What `./tidegauge test …` asks of pytest."""

from pathlib import Path

import pytest

from services.console.checks import (
    HALVES,
    KILLS,
    closing_line,
    pytest_arguments,
    run_side_by_side,
)
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit

# Says so once the other one is there too, and for at most a few seconds waits for it.
MEETS = """
import sys, time
from pathlib import Path
me, other = sys.argv[1:]
folder = Path(__file__).parent
(folder / me).touch()
for _ in range(1000):
    if (folder / other).exists():
        print(me, "met", other)
        sys.exit()
    time.sleep(0.02)
sys.exit(1)
"""


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


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that `python -m` finds."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_modules_side_by_side_wait_for_each_other_and_are_heard_in_order(
    modules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (modules / "meets.py").write_text(MEETS)
    both = [["meets", "first", "second"], ["meets", "second", "first"]]
    assert run_side_by_side(both) == 0
    assert capfd.readouterr().out == "first met second\nsecond met first\n"


@pytest.mark.parametrize("codes", [(3, 0), (0, 3)])
def test_one_that_fails_is_enough(modules: Path, codes: tuple[int, int]) -> None:
    (modules / "ends.py").write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    assert run_side_by_side([["ends", str(code)] for code in codes]) == 3


def test_the_halves_are_every_folder_of_tests_once() -> None:
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}

    def takes(half: tuple[str, ...], folder: Path) -> bool:
        left_out = [argument.removeprefix("--ignore=") for argument in half if "=" in argument]
        return any(map(folder.is_relative_to, half)) and not any(
            map(folder.is_relative_to, left_out)
        )

    for folder in folders - {Path("tests/faults"), Path("tests/engines")}:
        assert [takes(half, folder) for half in HALVES].count(True) == 1, folder


def test_what_the_second_half_of_the_faults_leaves_out_is_there() -> None:
    assert all((ROOT / module).is_file() for module in KILLS)


def test_the_closing_line_counts_both_halves(tmp_path: Path) -> None:
    for name, counts in (("a", (9, 1, 1, 2)), ("b", (5, 0, 0, 0))):
        numbers = dict(zip(("tests", "failures", "errors", "skipped"), counts, strict=True))
        attributes = " ".join(f'{key}="{value}"' for key, value in numbers.items())
        (tmp_path / name).write_text(f"<testsuites><testsuite {attributes}/></testsuites>")
    both = [tmp_path / "a", tmp_path / "b"]
    assert closing_line(both) == "10 passed, 1 failed, 1 errors, 2 skipped"
    assert closing_line(both[1:]) == "5 passed"
