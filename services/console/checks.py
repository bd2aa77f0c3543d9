"""The verb `test`: format, lint, types and import boundaries, then pytest.

The verb `bench`: runs `tests/benchmarks/NAME.py` and shows figures and ratios.

A benchmark is a module with `measure(say, scratch) -> BenchmarkResult`. It reports progress through
`say(text)`, keeps its files in `scratch`, and measures itself and a peer alternately in one run,
because machines are noisy. A figure's name ends with its unit; NAME_low and NAME_high are the
bounds of NAME. A baseline is the output of an earlier run. A ratio has fallen if its whole interval
is below that of the baseline. If a benchmark fails, the others are still run and written.
"""

import importlib
import json
import math
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemas.validation_errors import DefinitionError
from services.console.files import check_file, write_file
from services.console.terminal import say_unless_quiet
from services.definitions.requests import environment
from services.runtime.limits import limits
from services.runtime.settings import EXIT_USAGE, ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)
# Tests of services mostly wait for one, so one process more than there are cores shares them.
# tests/conftest.py defines which tests stay together. Tests of whole stacks come first because they
# take longest.
MOST_PROCESSES = 6
SHARED = ("--dist", "loadfile", "--no-loadscope-reorder")
FOLDERS = ("end_to_end", "integration", "security", "unit", "contract")
BENCHMARKS_DIR = ROOT / "tests" / "benchmarks"
_BOUNDS = ("_low", "_high")


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest if arguments are given; returns the exit code.

    arguments: as of `pytest_arguments`; the first may be a kind of tests from pyproject.toml.
    """
    if not (ROOT / "tests").is_dir():
        print(
            "tidegauge: the tests need a source checkout; the package does not contain them.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    for name, command in () if arguments else CHECKS:
        code = _module(command)
        if code:
            print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
            return 1
        print(f"{name}: passed", flush=True)
    return _module(["pytest", *pytest_arguments(arguments)])


def pytest_arguments(arguments: list[str]) -> list[str]:
    """The arguments, with a leading kind of tests as a pytest option. Nothing and options alone are
    for all tests, several at a time."""
    if arguments == ["faults"]:
        return ["-m", "faults", "-n", "2", *SHARED, "tests"]
    if all(each.startswith("-") for each in arguments):
        folders = (f"tests/{folder}" for folder in FOLDERS)
        return ["-n", str(processes()), *SHARED, *arguments, *folders]
    return ["-m", *arguments] if arguments[0] in _kinds() else arguments


def processes() -> int:
    """Number of processes that share all tests."""
    return min(limits().whole_cores + 1, MOST_PROCESSES)


def _kinds() -> list[str]:
    """The markers declared in pyproject.toml, each as `name: description`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [line.partition(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]]


def _module(command: list[str]) -> int:
    if command[0] == "importlinter.cli":
        program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
        return subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        ).returncode
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode


class BenchmarkResult(Protocol):
    """The result of a benchmark."""

    @property
    def figures(self) -> dict[str, float]:
        """Measured values by name."""

    @property
    def ratios(self) -> dict[str, float]:
        """Our figure relative to a peer's; above 1 if ours is better."""


Measure = Callable[[Callable[[str], None], Path], BenchmarkResult]


def benchmark_names() -> tuple[str, ...]:
    """Names of all benchmarks, sorted."""
    result = BENCHMARKS_DIR.glob("*.py")
    return tuple(sorted(path.stem for path in result if not path.stem.startswith("_")))


def run_benchmarks(
    names: Sequence[str], path: Path | None, baseline: Path | None, console: Console
) -> tuple[str, ...]:
    """Run these benchmarks, or all if none is named, and print the figures. Returns a sentence for
    each ratio that has fallen since the baseline, or that is missing from a run of all benchmarks.
    Raises DefinitionError, also for benchmarks that failed, after all others."""
    known = benchmark_names()
    for name in names:
        if name not in known:
            raise DefinitionError(f"There is no benchmark {name!r}; there are: {', '.join(known)}.")
    check_file("--json", path)
    before, machine = read_baseline(baseline) if baseline else ({}, "")
    if baseline and machine != machine_of(environment()):
        console.print(f"The baseline was measured on another machine: {machine}.", soft_wrap=True)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    failed = []
    for each in dict.fromkeys(names) or known:
        measure: Measure = importlib.import_module(f"tests.benchmarks.{each}").measure
        try:
            with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as scratch:
                measured = measure(partial(say_unless_quiet, console), Path(scratch))
        except Exception as error:
            traceback.print_exc()
            failed.append(f"The benchmark {each} failed: {_last_line(error)}")
            continue
        figures.update(measured.figures)
        ratios.update(measured.ratios)
    if figures:
        _show(console, figures, ratios)
    if path is not None and figures:
        result = {"figures": figures, "ratios": ratios, "environment": environment()}
        write_file("--json", path, (json.dumps(result, indent=2) + "\n").encode())
    if failed:
        raise DefinitionError(" ".join(failed))
    if baseline and not set(before) & set(ratios):
        raise DefinitionError(f"--baseline {baseline}: it has none of the ratios measured.")
    gone = () if names else missing(ratios, before)
    return fallen(ratios, before) + gone


def _last_line(error: Exception) -> str:
    """The last line of an error's text, which may be the whole output of a command."""
    lines = str(error).split("\n")
    text = next((line.strip() for line in reversed(lines) if line.strip()), type(error).__name__)
    return text if text.endswith(".") else f"{text}."


def read_baseline(path: Path) -> tuple[dict[str, float], str]:
    """The ratios in a file written by `--json`, and its machine. Raises DefinitionError."""
    try:
        result = json.loads(path.read_bytes())
        ratios = {name: float(value) for name, value in result["ratios"].items()}
        machine = machine_of(result.get("environment", {}))
        if not all(map(math.isfinite, ratios.values())):
            raise ValueError("a ratio is a finite number")
    except OSError as error:
        raise DefinitionError(f"--baseline {path}: {error.strerror}.") from error
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise DefinitionError(f"--baseline {path} is not a file of `bench --json`.") from error
    return ratios, machine


def machine_of(environment: Mapping[str, Any]) -> str:
    """Processor and cores of an environment."""
    processor = environment.get("processor", "unknown processor")
    return f"{processor}, {environment.get('cores', '?')} cores"


def fallen(now: Mapping[str, float], before: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence for each ratio whose interval is below the previous one; without an interval the
    value itself counts."""
    result = []
    for name in before.keys() & now.keys():
        highest = now.get(f"{name}_high", now[name])
        lowest = before.get(f"{name}_low", before[name])
        if highest < lowest and not name.endswith(_BOUNDS):
            was, became = _with_bounds(before, name), _with_bounds(now, name)
            result.append(f"{name} fell from {was} to {became}.")
    return tuple(sorted(result))


def missing(now: Mapping[str, float], before: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence for each previous ratio that was not measured now."""
    gone = sorted(name for name in before.keys() - now.keys() if not name.endswith(_BOUNDS))
    return tuple(f"{name} was {_with_bounds(before, name)} and was not measured." for name in gone)


def _show(console: Console, figures: Mapping[str, float], ratios: Mapping[str, float]) -> None:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right")
    for kind, values in (("", figures), (" (ratio)", ratios)):
        bounds = {f"{name}_{end}" for name in values for end in ("low", "high")}
        for name in values:
            if name not in bounds:
                table.add_row(f"{name}{kind}", _with_bounds(values, name))
    console.print(table)


def _with_bounds(values: Mapping[str, float], name: str) -> str:
    """A value, with its bounds if known."""
    value, low, high = (values.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    if low is None or high is None:
        return number(value)
    return f"{number(value)} ({number(low)} to {number(high)})"


def number(value: float | None) -> str:
    """A value in few characters; empty if not known."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
