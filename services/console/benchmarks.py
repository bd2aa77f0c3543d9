"""The verb `bench`: runs `tests/benchmarks/NAME.py` and shows figures and ratios.

A benchmark is a module with `measure(say, scratch) -> Measured`: it says what it does through
`say(text)`, keeps its files in `scratch`, and measures itself and a peer in one run, alternately,
because machines are noisy. Figures are in the unit that their name ends with.
"""

import importlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from services.console.files import check_file, write_file
from services.runtime.definitions import DefinitionError
from services.runtime.environment import environment
from services.runtime.settings import ROOT

BENCHMARKS_DIR = ROOT / "tests" / "benchmarks"


class Measured(Protocol):
    """What a benchmark returns."""

    @property
    def figures(self) -> dict[str, float]:
        """Measured values by name."""

    @property
    def ratios(self) -> dict[str, float]:
        """Ours against a peer's, above 1 where ours is better."""


Measure = Callable[[Callable[[str], None], Path], Measured]


def benchmark_names() -> tuple[str, ...]:
    """Names of all benchmarks, sorted."""
    found = BENCHMARKS_DIR.glob("*.py")
    return tuple(sorted(path.stem for path in found if not path.stem.startswith("_")))


def run_benchmarks(name: str | None, path: Path | None, console: Console) -> None:
    """Run one benchmark or all and show the figures. Raises DefinitionError."""
    known = benchmark_names()
    if name is not None and name not in known:
        raise DefinitionError(f"There is no benchmark {name!r}; there are: {', '.join(known)}.")
    check_file("--json", path)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for each in [name] if name else known:
        measure: Measure = importlib.import_module(f"tests.benchmarks.{each}").measure
        with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as scratch:
            measured = measure(lambda text: console.print(text, soft_wrap=True), Path(scratch))
        figures.update(measured.figures)
        ratios.update(measured.ratios)
    _show(console, figures, ratios)
    if path is not None:
        found = {"figures": figures, "ratios": ratios, "environment": environment()}
        write_file("--json", path, (json.dumps(found, indent=2) + "\n").encode())


def _show(console: Console, figures: dict[str, float], ratios: dict[str, float]) -> None:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right")
    for name, value in {**figures, **ratios}.items():
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
        table.add_row(f"{name} (ratio)" if name in ratios else name, shown)
    console.print(table)
