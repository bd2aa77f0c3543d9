"""The verb `test`: format, lint, types and import boundaries, then pytest."""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from services.runtime.settings import ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)
# Tests of services mostly wait for one of them, so two halves that take about as long run side by
# side. tests/faults is not among them: it takes long.
HALVES = (
    ("tests/contract", "tests/unit", "tests/end_to_end", "tests/integration/local_stack"),
    ("tests/integration", "--ignore=tests/integration/local_stack"),
)


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest when arguments are given; returns the exit code.

    arguments: pytest's; the first may be a kind of tests, as pyproject.toml names them (`faults`).
    """
    if arguments:
        return _module(["pytest", *pytest_arguments(arguments)])
    for name, command in CHECKS:
        code = _module(command)
        if code:
            print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
            return 1
        print(f"{name}: passed", flush=True)
    return run_side_by_side([["pytest", *half] for half in HALVES])


def run_side_by_side(modules: list[list[str]]) -> int:
    """Run modules with their arguments at the same time; returns the first exit code that is not 0.

    What the first says is seen as it comes, what the others say after it.
    """
    first, *others = modules
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for number, module in enumerate(others):
            said = Path(folder) / str(number)
            with said.open("wb") as out:
                command = [sys.executable, "-m", *module]
                process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
            running.append((process, said))
        codes = [_module(first)]
        for process, said in running:
            codes.append(process.wait())
            print(said.read_text(errors="replace"), end="", flush=True)
    return next((code for code in codes if code), 0)


def pytest_arguments(arguments: list[str]) -> list[str]:
    """The arguments with a kind of tests in front as pytest's option."""
    if arguments and arguments[0] in _kinds():
        return ["-m", *arguments]
    return arguments


def _kinds() -> list[str]:
    """The markers that pyproject.toml declares, each `name: what it means`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [line.partition(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]]


def _module(command: list[str]) -> int:
    if command[0] == "importlinter.cli":
        program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
        return subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        ).returncode
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
