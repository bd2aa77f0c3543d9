"""The verb `test`: format, lint, types and import boundaries, then pytest."""

import subprocess
import sys
import tomllib

from services.runtime.settings import EXIT_USAGE, ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)
# Tests of services mostly wait for one, so two processes share them. tests/conftest.py defines
# which tests stay together. Tests of whole stacks come first because they take longest.
SHARED = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
FOLDERS = ("end_to_end", "integration", "security", "unit", "contract")


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest if arguments are given; returns the exit code.

    arguments: for pytest; the first may be a kind of tests from pyproject.toml (`faults`).
    """
    if not (ROOT / "tests").is_dir():
        print(
            "tidegauge: the tests need a source checkout; the package does not contain them.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    if arguments == ["faults"]:
        return _module(["pytest", "-m", "faults", *SHARED, "tests"])
    if arguments:
        return _module(["pytest", *pytest_arguments(arguments)])
    for name, command in CHECKS:
        code = _module(command)
        if code:
            print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
            return 1
        print(f"{name}: passed", flush=True)
    return _module(["pytest", *SHARED, *(f"tests/{folder}" for folder in FOLDERS)])


def pytest_arguments(arguments: list[str]) -> list[str]:
    """The arguments, with a leading kind of tests as a pytest option."""
    if arguments and arguments[0] in _kinds():
        return ["-m", *arguments]
    return arguments


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
