"""The verb `test`: format, lint, types and import boundaries, then pytest."""

import subprocess
import sys
import tomllib

from services.runtime.settings import ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest when arguments are given; returns the exit code.

    arguments: pytest's; the first may be a kind of tests, as pyproject.toml names them (`faults`).
    """
    if not arguments:
        for name, command in CHECKS:
            code = _module(command)
            if code:
                print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
                return 1
            print(f"{name}: passed", flush=True)
    return _module(["pytest", *pytest_arguments(arguments)])


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
