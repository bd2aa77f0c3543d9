"""An upgrade: with the data folder of an earlier version, all results are the same as in that
version.

`data/folder-of-d85835e.tar.xz` contains what commit d85835e stored of two runs: the broker's
records, the ClickHouse folder and the conductor's notes. The JSON file beside it contains the
results of that version's own `runs`, `report --json` and `sql`. Both were made with a retention
that does not expire anything.
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.breakable_stack import FOR_EVER, BreakableStack, eventually

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

DATA = Path(__file__).with_name("data")
NAME = "folder-of-d85835e"
EXPECTED: dict[str, Any] = json.loads((DATA / f"{NAME}.json").read_text())
EXPECTED_DIGESTS = {
    table: then["runs"] for table, then in EXPECTED["tables"].items() if then["runs"]
}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    """The old folder as it was on disk: readable by others, with a password of 128 bits as hex."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(DATA / f"{NAME}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    data = folder / "data"
    data.chmod(0o755)
    (data / "secrets").mkdir(mode=0o700)
    for name in ("clickhouse-admin", "clickhouse-reader"):
        secret = data / "secrets" / name
        secret.touch(0o600)
        secret.write_text("6b1f0c5e9a3d47288e5f0b7c2d9a6143\n")
    stack = BreakableStack(data)
    yield stack
    stack.tidegauge("down")


def answer(stack: BreakableStack, *arguments: str) -> str:
    """Output of a command, which must succeed."""
    done = stack.tidegauge(*arguments, **FOR_EVER)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(stack: BreakableStack, sql: str) -> list[dict[str, Any]]:
    text = answer(stack, "sql", "--format", "JSONEachRow", sql)
    return [json.loads(line) for line in text.splitlines()]


def assert_answers_as_then(stack: BreakableStack) -> None:
    """Assert that the old runs are listed, reported and found in SQL as in the old version."""
    listed = [" ".join(line.split()) for line in answer(stack, "runs").splitlines()]
    wanted = [" ".join(" ".join(run).split()) for run in EXPECTED["runs"]]
    assert [line for line in listed if line in wanted] == wanted
    for run_id, report in EXPECTED["reports"].items():
        assert_contains(json.loads(answer(stack, "report", run_id, "--json")), report, run_id)
    assert digests(stack) == EXPECTED_DIGESTS
    ids = ", ".join(f"'{run_id}'" for run_id in EXPECTED["reports"])
    for view, key in (("latency_summary", "latencies"), ("verdict_totals", "verdicts")):
        columns = ", ".join(EXPECTED[key][0])
        where = "phase = 'measure'" if key == "latencies" else "true"
        sql = f"SELECT {columns} FROM {view} WHERE {where} AND run_id IN ({ids}) ORDER BY ALL"
        assert rows(stack, sql) == EXPECTED[key]


def digests(stack: BreakableStack) -> dict[str, dict[str, list[Any]]]:
    """Number and digest of the rows of each old run, by table, over the old version's columns."""
    ids = ", ".join(f"'{run_id}'" for run_id in EXPECTED["reports"])
    tables = []
    for table, then in EXPECTED["tables"].items():
        row = ", ".join(f"`{column}`" for column in then["columns"])
        tables.append(
            f"SELECT '{table}' AS table, run_id, count() AS n,"
            f" toString(sum(cityHash64(tuple({row})))) AS digest"
            f" FROM {table} WHERE run_id IN ({ids}) GROUP BY run_id"
        )
    found: dict[str, dict[str, list[Any]]] = {}
    for one in rows(stack, " UNION ALL ".join(tables)):
        found.setdefault(one["table"], {})[one["run_id"]] = [one["n"], one["digest"]]
    return found


def assert_contains(found: Any, then: Any, where: str) -> None:
    """Assert that all old results are still there; a newer version may add to them."""
    if not isinstance(then, dict):
        assert found == then, where
        return
    for name, value in then.items():
        assert_contains(found[name], value, f"{where}.{name}")


def test_an_old_folder_is_read_rebuilt_from_its_bus_and_goes_on(old: BreakableStack) -> None:
    assert_answers_as_then(old)
    old.start(**FOR_EVER)
    assert "Every table holds the same rows as before." in answer(old, "rebuild")
    assert_answers_as_then(old)
    old.has_clean_run()
    assert_answers_as_then(old)


def test_an_old_bus_alone_gives_the_same_answers(old: BreakableStack) -> None:
    old.tidegauge("down")
    shutil.rmtree(old.settings.data / "clickhouse")
    old.start(**FOR_EVER)
    eventually(lambda: digests(old) == EXPECTED_DIGESTS, "all is projected from the old bus")
    assert_answers_as_then(old)
    assert old.tidegauge("down").returncode == 0
