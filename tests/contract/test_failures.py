"""docs/failures.md has a row for every engine, measured by a test."""

import pytest

from tests.documentation import replaced
from tests.faults.killed_engines import MARK, PAGE, Row, measured_pipelines, read, table

pytestmark = pytest.mark.contract


def test_every_engine_and_every_pipeline_of_spark_has_a_row() -> None:
    rows = {row.pipeline: row for row in read()}
    assert set(measured_pipelines()) == set(rows)
    assert all(row.run_id for row in rows.values())


def test_the_table_is_the_one_of_the_figures() -> None:
    assert replaced(PAGE.read_text(), MARK, table(read())) == PAGE.read_text()


def test_a_row_says_what_a_kill_cost() -> None:
    back = Row("a", "x", "1", ("parse",), 3.26, 90, 4, 5, 1, 2, 3)
    gone = Row(
        "b",
        "y",
        "2",
        ("parse",),
        None,
        10,
        0,
        0,
        87,
        0,
        0,
        "it ended (code -9): [x] | y",
    )
    assert table([gone, back]).splitlines()[2:] == [
        "| `a` | 3.3 s | 4 | 5 | 1 | 5 | 97 | valid |",
        "| `b` | until the end | 0 | 0 | 87 | 0 | 97 | INVALID: it ended (code -9) |",
    ]
