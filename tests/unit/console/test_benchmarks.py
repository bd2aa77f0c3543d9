"""Ratios of benchmarks: their intervals, and which have fallen since a baseline."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from schemas.validation_errors import DefinitionError
from services.console import checks
from services.console.checks import fallen, run_benchmarks
from services.console.terminal import Terminal
from tests.benchmarks._measured import Measured, averaged, quotient, ratio

pytestmark = pytest.mark.unit

BEFORE = {"a": 1.0, "a_low": 0.9, "a_high": 1.1}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"a": 0.85, "a_low": 0.8, "a_high": 0.9}, ()),
        (
            {"a": 0.85, "a_low": 0.8, "a_high": 0.89},
            ("a fell from 1 (0.9 to 1.1) to 0.85 (0.8 to 0.89).",),
        ),
        ({"a": 0.89}, ("a fell from 1 (0.9 to 1.1) to 0.89.",)),
        ({"a": 2.0}, ()),
        ({"b": 0.1}, ()),
    ],
    ids=["intervals touch", "below", "without an interval", "higher", "another"],
)
def test_a_ratio_has_fallen_where_its_whole_interval_lies_below(
    now: dict[str, float], said: tuple[str, ...]
) -> None:
    assert fallen(now, BEFORE) == said


def test_the_ratio_of_rounds_is_the_geometric_mean_with_the_interval_of_its_logarithm() -> None:
    found = ratio("r", [2.0, 8.0], [1.0, 1.0])
    assert found["r"] == pytest.approx(4.0)
    # Student's t of one degree of freedom is 12.706, the standard error half of ln 4.
    assert found["r_high"] == pytest.approx(4 * 4 ** (12.706 / 2), rel=1e-3)
    assert found["r_low"] * found["r_high"] == pytest.approx(16.0)
    assert averaged("x", [3.0]) == {"x": 3.0}


def test_the_bounds_of_a_quotient_are_the_farthest() -> None:
    figures = {"a": 6.0, "a_low": 4.0, "a_high": 8.0, "b": 2.0, "b_low": 1.0, "b_high": 4.0}
    assert quotient("q", figures, "a", "b") == {"q": 3.0, "q_low": 1.0, "q_high": 8.0}
    assert quotient("q", figures | {"b_low": 0.0}, "a", "b") == {"q": 3.0}
    assert quotient("q", {"a": 6.0, "b": 2.0}, "a", "b") == {"q": 3.0}


def test_a_benchmark_that_fails_is_told_after_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def module(name: str) -> object:
        class Module:
            @staticmethod
            def measure(_say: object, _scratch: Path) -> Measured:
                if name.endswith("broken"):
                    raise RuntimeError("starting\ntidegauge: summary: Field required.\n\n")
                return Measured({"b_ms": 3.0}, {"a": 0.5})

        return Module

    monkeypatch.setattr(checks, "benchmark_names", lambda: ("broken", "whole"))
    monkeypatch.setattr(checks.importlib, "import_module", module)
    path, said = tmp_path / "found.json", "The benchmark broken failed: tidegauge: summary: Field"
    with pytest.raises(DefinitionError, match=said):
        run_benchmarks((), path, None, Console(file=io.StringIO()))
    assert json.loads(path.read_text())["ratios"] == {"a": 0.5}


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One benchmark, whose ratio is 0.5."""

    class Module:
        @staticmethod
        def measure(say: Callable[[str], None], _scratch: Path) -> Measured:
            say("round 1 of 9")
            return Measured({"b_ms": 3.0, "b_ms_low": 2.0, "b_ms_high": 4.0}, {"a": 0.5})

    monkeypatch.setattr(checks, "benchmark_names", lambda: ("one",))
    monkeypatch.setattr(checks.importlib, "import_module", lambda _name: Module)


@pytest.mark.usefixtures("one")
def test_a_baseline_is_what_an_earlier_run_wrote(tmp_path: Path) -> None:
    shown, path = io.StringIO(), tmp_path / "before.json"
    assert run_benchmarks(("one",), path, None, Console(file=shown)) == ()
    assert "3 (2 to 4)" in shown.getvalue()
    assert "b_ms_low" not in shown.getvalue()
    assert run_benchmarks(("one",), None, path, Console(file=shown)) == ()
    assert "another machine" not in shown.getvalue()
    path.write_text(json.dumps({"ratios": {"a": 0.6}, "environment": {"cores": 512}}))
    assert run_benchmarks(("one",), None, path, Console(file=shown)) == ("a fell from 0.6 to 0.5.",)
    assert "another machine: unknown processor, 512 cores." in shown.getvalue()
    with pytest.raises(DefinitionError, match="There is no benchmark 'two'"):
        run_benchmarks(("one", "two"), None, None, Console(file=shown))


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("is_quiet", [False, True])
def test_progress_is_told_unless_it_is_quiet(is_quiet: bool) -> None:
    shown = io.StringIO()
    run_benchmarks(("one",), None, None, Terminal(is_quiet=is_quiet, file=shown))
    assert ("round 1 of 9" in shown.getvalue()) is not is_quiet
    assert "3 (2 to 4)" in shown.getvalue()


@pytest.mark.usefixtures("one")
def test_all_benchmarks_tell_of_a_ratio_that_none_has_any_more(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"ratios": {"a": 0.5, "b": 2.0, "b_low": 1.5, "b_high": 2.5}}))
    said = ("b was 2 (1.5 to 2.5) and was not measured.",)
    assert run_benchmarks((), None, path, Console(file=io.StringIO())) == said
    assert run_benchmarks(("one",), None, path, Console(file=io.StringIO())) == ()


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory."),
        ("{}", "is not a file of `bench --json`."),
        ("[]", "is not a file of `bench --json`."),
        ('{"ratios": {"a": 1}, "environment": []}', "is not a file of `bench --json`."),
        ("", "is not a file of `bench --json`."),
        ('{"ratios": {"a": "much"}}', "is not a file of `bench --json`."),
        ('{"ratios": {"a": NaN}}', "is not a file of `bench --json`."),
        ('{"ratios": {"a": 1e999}}', "is not a file of `bench --json`."),
        ('{"ratios": {"a": 1' + "0" * 400 + "}}", "is not a file of `bench --json`."),
        ("[" * 100_000, "is not a file of `bench --json`."),
        ('{"ratios": {"other": 1}}', "it has none of the ratios measured."),
    ],
)
def test_a_file_that_is_no_baseline_is_told_in_a_sentence(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "before.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DefinitionError, match=f"^--baseline .*before.json.* {said}$"):
        run_benchmarks(("one",), None, path, Console(file=io.StringIO()))
