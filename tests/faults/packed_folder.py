"""A packed data folder of a release, and what that release answered about it.

`python -m tests.faults.packed_folder VERSION` does two runs on a stack of its own and writes
`data/VERSION.tar.xz` and `data/VERSION.json`: once, for the released commit.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.faults.breakable_stack import FOR_EVER, WORKLOAD, BreakableStack, breakable_stack

DATA = Path(__file__).with_name("data")
KEPT = ("kafka", "clickhouse", "conductor.json", "definitions")
NOT_KEPT = (".index", ".timeindex", ".lock", "producers.snapshot")  # the broker makes them anew
LOAD = WORKLOAD.replace("give_up_ms = 60_000", "give_up_ms = 4_000").format(
    name="packed", rate=50, measure_s=4, deadline_ms=3_000, late_ms=60_000
)
CLEAN = 'name = "clean"\nsummary = "-"\nengine = "calibration"\ndelay_ms = 5\n'
FAULTY = CLEAN.replace("clean", "faulty") + "".join(
    f"{fault}_one_in = 20\n" for fault in ("drop", "duplicate", "corrupt")
)
LATENCIES = "run_id, pipeline, stage, definition, count, p50_ms, p99_ms, max_ms"
VERDICTS = "run_id, pipeline, stage, phase, exact, wrong, missing, late, duplicate, unexpected"
Json = dict[str, Any]


def answer(stack: BreakableStack, *arguments: str) -> str:
    """Output of a command, which must succeed."""
    done = stack.tidegauge(*arguments, **FOR_EVER)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(stack: BreakableStack, sql: str) -> list[Json]:
    """Rows of a query by the command line."""
    text = answer(stack, "sql", "--format", "JSONEachRow", sql)
    return [json.loads(line) for line in text.splitlines()]


def columns_of(stack: BreakableStack) -> dict[str, list[str]]:
    """The columns of every table with rows of runs."""
    found: dict[str, list[str]] = {}
    sql = (
        "SELECT table, name FROM system.columns WHERE database = 'tidegauge'"
        " AND table IN (SELECT table FROM system.columns WHERE name = 'run_id')"
        " AND (table LIKE 'results_%' OR table IN ('dead_letter', 'latency_minutes'))"
        " ORDER BY table, position"
    )
    for row in rows(stack, sql):
        found.setdefault(row["table"], []).append(row["name"])
    return found


def answers(stack: BreakableStack, run_ids: list[str], columns: dict[str, list[str]]) -> Json:
    """What a version answers about runs. digests: number and digest of the rows of each, by table,
    over these columns."""
    ids = ", ".join(f"'{run_id}'" for run_id in run_ids)
    tables = " UNION ALL ".join(
        f"SELECT '{table}' AS table, run_id, count() AS n,"
        f" toString(sum(cityHash64(tuple({', '.join(f'`{name}`' for name in names)})))) AS digest"
        f" FROM {table} WHERE run_id IN ({ids}) GROUP BY run_id"
        for table, names in columns.items()
    )
    return {
        "runs": [
            run for run in json.loads(answer(stack, "runs", "--json")) if run["run_id"] in ids
        ],
        "reports": {one: json.loads(answer(stack, "report", one, "--json")) for one in run_ids},
        "digests": {
            f"{row['table']} {row['run_id']}": [row["n"], row["digest"]]
            for row in rows(stack, tables)
        },
        **{
            view: rows(stack, f"SELECT {names} FROM {view} WHERE run_id IN ({ids}) ORDER BY ALL")
            for view, names in (("latency_summary", LATENCIES), ("verdict_totals", VERDICTS))
        },
    }


def pack(version: str) -> None:
    """Do the runs and write both files."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with breakable_stack(data, **FOR_EVER) as stack:
            run_ids = [_run(stack, text) for text in (FAULTY, CLEAN)]
            answer(stack, "rebuild")  # few large parts in place of many small ones
            columns = columns_of(stack)
            told = {"columns": columns, "answers": answers(stack, run_ids, columns)}
        with tarfile.open(DATA / f"{version}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(data, "data", filter=_kept)
    (DATA / f"{version}.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")


def _run(stack: BreakableStack, pipeline: str) -> str:
    """Do a run of a pipeline, which must be valid; returns its id."""
    for name, text in (("load.toml", LOAD), ("pipeline.toml", pipeline)):
        (stack.settings.data / name).write_text(text)
    files = [str(stack.settings.data / name) for name in ("load.toml", "pipeline.toml")]
    report = ("--report", str(stack.report_path))
    done = stack.tidegauge("run", files[0], "--pipeline", files[1], *report, **FOR_EVER)
    found = json.loads(stack.report_path.read_text())
    assert found["valid"], done.stdout + done.stderr
    return str(found["run_id"])


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    inside = entry.name.split("/")
    is_kept = len(inside) == 1 or inside[1] in KEPT
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry if is_kept and not entry.name.endswith(NOT_KEPT) else None


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    pack(sys.argv[1])
