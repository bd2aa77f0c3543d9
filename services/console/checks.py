"""The verb `test`: format, lint, types and import boundaries, then pytest."""

import subprocess
import sys

from services.runtime.settings import ROOT

CHECKS = (
    ("format", ["ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["ruff", "check", "--quiet", "."]),
    ("types", ["mypy", "--no-error-summary"]),
    ("import boundaries", ["importlinter.cli", "lint_imports"]),
)


def run_tests(arguments: list[str]) -> int:
    """Run everything, or only pytest when arguments are given; returns the exit code."""
    if not arguments:
        for name, command in CHECKS:
            code = _module(command)
            if code:
                print(f"tidegauge: {name} failed; the tests were not run.", file=sys.stderr)
                return 1
            print(f"{name}: passed", flush=True)
    return _module(["pytest", *arguments])


def _module(command: list[str]) -> int:
    if command[0] == "importlinter.cli":
        program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
        return subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        ).returncode
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
