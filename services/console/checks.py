"""The verb `test`: format, lint, types and import boundaries, then pytest."""

import subprocess
import sys
import tempfile
import tomllib
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from services.runtime.settings import EXIT_USAGE, ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)
# Tests of services mostly wait for one of them, so two halves that take about as long run side by
# side. tests/faults and tests/engines are not among them: they take long.
HALVES = (
    ("tests/contract", "tests/unit", "tests/end_to_end", "tests/integration/local_stack"),
    ("tests/integration", "tests/security", "--ignore=tests/integration/local_stack"),
)
KILLS = ("tests/faults/test_random_kills.py", "tests/faults/test_parts_killed.py")
FAULT_HALVES = (
    ("-m", "faults", *KILLS),
    ("-m", "faults", "tests", *(f"--ignore={module}" for module in KILLS)),
)


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest when arguments are given; returns the exit code.

    arguments: pytest's; the first may be a kind of tests, as pyproject.toml names them (`faults`).
    """
    if not (ROOT / "tests").is_dir():
        print("tidegauge: the tests are in a checkout only, not in the package.", file=sys.stderr)
        return EXIT_USAGE
    if arguments == ["faults"]:
        return _run_halves(FAULT_HALVES)
    if arguments:
        return _module(["pytest", *pytest_arguments(arguments)])
    for name, command in CHECKS:
        code = _module(command)
        if code:
            print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
            return 1
        print(f"{name}: passed", flush=True)
    return _run_halves(HALVES)


def _run_halves(halves: tuple[tuple[str, ...], ...]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder) / f"{number}.xml" for number in range(len(halves))]
        code = run_side_by_side(
            [
                ["pytest", *half, f"--junitxml={result}"]
                for half, result in zip(halves, results, strict=True)
            ]
        )
        print(closing_line([result for result in results if result.exists()]))
    return code


def closing_line(results: list[Path]) -> str:
    """What pytest would say at its end of files of results in JUnit's format, taken together."""
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in (suite for file in results for suite in ElementTree.parse(file).iter("testsuite")):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    tests, failed, errors, skipped = counts.values()
    said = [f"{tests - failed - errors - skipped} passed"]
    others = (("failed", failed), ("errors", errors), ("skipped", skipped))
    return ", ".join(said + [f"{count} {name}" for name, count in others if count])


def run_side_by_side(modules: list[list[str]]) -> int:
    """Run modules with their arguments at the same time; returns the first exit code that is not 0.

    What the first says is seen as it comes, what the others say after it.
    """
    first, *others = modules
    with ExitStack() as files:
        running = []
        for module in others:
            said = files.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            command = [sys.executable, "-m", *module]
            running.append((subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said), said))
        codes = [_module(first)]
        for process, said in running:
            codes.append(process.wait())
            said.seek(0)
            print(said.read(), end="", flush=True)
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
