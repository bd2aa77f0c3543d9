"""Writes the table of docs/failures.md from the figures of test_killed_engines.py.

.venv/bin/python -m tests.faults.killed_engines
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from services.definitions.engines import load_engine
from services.definitions.pipelines import PIPELINES_DIR, load_pipeline, names
from services.runtime.settings import ROOT
from tests.documentation import replaced

RESULTS = "TIDEGAUGE_KILLED_ENGINES"  # environment variable: the file that the test writes to
FIGURES = ROOT / "docs" / "killed-engines.json"
PAGE = ROOT / "docs" / "failures.md"
MARK = "killed engines"


@dataclass(frozen=True)
class Row:
    """Effects of killing one pipeline. out_s: the longest time without an output of a stage; None
    if there were none afterwards. reason: why the run is INVALID, empty if it is valid. The counts
    are of outputs of the measure phase."""

    pipeline: str
    engine: str
    run_id: str
    stages: tuple[str, ...]
    out_s: float | None
    exact: int
    late: int
    duplicate: int
    missing: int
    wrong: int
    unexpected: int
    reason: str = ""


OURS = ("calibration", "socket")  # engines that run no product of others


def measured_pipelines() -> tuple[str, ...]:
    """Every pipeline of Spark and of an engine in `engines/`, but those that check Tidegauge."""
    found = []
    for name in names(PIPELINES_DIR):
        engine = load_engine(load_pipeline(name).engine)
        is_measured = engine.folder.parent == ROOT / "engines" and engine.spec.name not in OURS
        if engine.spec.name == "spark" or is_measured:
            found.append(name)
    return tuple(found)


def keep(path: Path, row: Row) -> None:
    """Add the row to the file, replacing an earlier one of its pipeline."""
    rows = {one.pipeline: one for one in read(path)} | {row.pipeline: row}
    found = [asdict(rows[name]) for name in sorted(rows)]
    path.write_text(json.dumps(found, indent=1) + "\n")


def read(path: Path = FIGURES) -> list[Row]:
    """All rows of a file; none if it does not exist."""
    given = json.loads(path.read_text()) if path.exists() else []
    return [Row(**one | {"stages": tuple(one["stages"])}) for one in given]


def table(rows: list[Row]) -> str:
    """Markdown, sorted by the duration of the outage."""
    head = (
        "pipeline",
        "outage",
        "late",
        "repeated",
        "lost",
        "wrong",
        "expected outputs",
        "the run is",
    )
    lines = [_line(head), _line(("---", *["---:"] * 6, "---"))]
    for row in sorted(rows, key=lambda one: (one.reason != "", one.out_s or 0, one.pipeline)):
        out = "until the end" if row.out_s is None else f"{row.out_s:.1f} s"
        judged = row.exact + row.late + row.missing + row.wrong
        wrong = row.wrong + row.unexpected
        counts = (row.late, row.duplicate, row.missing, wrong, judged)
        # After the exit code comes the last line of a log.
        reason, code, _log = row.reason.partition(")")
        verdict = f"INVALID: {reason}{code}" if row.reason else "valid"
        cells = (f"`{row.pipeline}`", out, *(f"{count}" for count in counts), verdict)
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table."""
    PAGE.write_text(replaced(PAGE.read_text(), MARK, table(read())))


if __name__ == "__main__":
    main()
