"""What the dashboard page may query, and how its queries are changed."""

import json
from pathlib import Path

import pytest

from services.store.dashboards.queries import (
    DASHBOARDS_DIR,
    AskingError,
    Dashboard,
    NotThereError,
    asked_from,
    dashboard,
    load_dashboards,
    panel_of,
    query_for,
)

pytestmark = pytest.mark.unit

MODEL = {
    "uid": "one",
    "title": "One",
    "panels": [
        {
            "id": 1,
            "type": "timeseries",
            "interval": ">10s",
            "targets": [
                {"refId": "A", "rawSql": "SELECT $__interval_s, '$secret'"},
                {"refId": "B", "rawSql": "SELECT 1 WHERE x IN (${stage:sqlstring})"},
                {"refId": "C", "rawSql": "SELECT ${run:sqlstring} WHERE $__timeFilter(t)"},
                {"refId": "D", "rawSql": ""},
                {"refId": "E", "rawSql": "SELECT $nobody"},
            ],
        },
        {"id": 2, "type": "row", "panels": [{"id": 3, "type": "text"}]},
    ],
    "templating": {
        "list": [
            {"name": "secret", "type": "constant", "query": "kept"},
            {"name": "stage", "type": "custom", "query": "join, All stages : every"},
            {"name": "run", "type": "query", "query": {"rawSql": "SELECT run_id FROM runs"}},
        ]
    },
    "annotations": {"list": [{"name": "Phases", "target": {"rawSql": "SELECT $__fromTime"}}]},
}
ONE = Dashboard("one", "One", "", MODEL)


def sql(**fields):
    given = {"dashboard": "one", "from_ms": 1_767_225_600_000, "to_ms": 1_767_229_200_000}
    asked = asked_from(json.dumps(given | fields).encode())
    query, interval_s = query_for(asked, ONE)
    return query.text, interval_s


def test_a_target_is_asked_with_its_own_least_interval_and_constants():
    # An hour in 5000 points would be one per second; the panel's minimum is ten seconds.
    assert sql(panel=1, points=5000) == ("SELECT 10, 'kept'", 10)


def test_an_interval_is_as_long_as_the_points_make_it():
    assert sql(panel=1, points=60)[1] == 60


def test_a_custom_variable_can_have_the_values_of_its_list():
    assert sql(panel=1, ref="B", variables={"stage": ["join", "every"]})[0].endswith(
        "x IN ('join','every')"
    )


def test_times_are_those_of_the_request():
    text, _ = sql(panel=1, ref="C", variables={"run": "2026-1"})
    assert text == (
        "SELECT '2026-1' WHERE t >= toDateTime(1767225600) AND t <= toDateTime(1767229200)"
    )


def test_variables_and_annotations_are_asked_by_name():
    assert sql(variable="run")[0] == "SELECT run_id FROM runs"
    assert sql(annotation="Phases")[0] == "SELECT toDateTime(1767225600)"


def test_a_query_is_bounded_and_only_reads():
    asked = {"dashboard": "one", "from_ms": 0, "to_ms": 1, "variable": "run"}
    query, _ = query_for(asked_from(json.dumps(asked).encode()), ONE)
    assert not query.may_write
    assert query.settings["max_result_rows"] == "100000"
    assert query.settings["max_execution_time"] == "20"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"panel": 7}, "no panel 7"),
        ({"panel": 3}, "no query 'A'"),
        ({"panel": 1, "ref": "Z"}, "no query 'Z'"),
        ({"panel": 1, "ref": "D"}, "contains no SQL"),
        ({"panel": 1, "ref": "E"}, "no variable 'nobody'"),
        ({"panel": 1, "ref": "C"}, "No value is given for the variable 'run'"),
        (
            {"panel": 1, "ref": "B", "variables": {"stage": "sliding"}},
            "'sliding' is not a value of",
        ),
        ({"panel": 1, "ref": "C", "variables": {"run": "a' OR 1"}}, "contains a quote"),
        ({"panel": 1, "ref": "C", "variables": {"run": "a\\"}}, "contains a quote"),
        ({"variable": "stage"}, "no variable 'stage' with a query"),
        ({"annotation": "Faults"}, "no annotation 'Faults'"),
        ({"panel": 1, "variable": "run"}, "name a panel, a variable or an annotation"),
        ({}, "name a panel"),
        ({"panel": 1, "to_ms": 0}, "must end after it begins"),
        ({"panel": 1, "points": 100_000}, "points: .*5000"),
        ({"panel": 1, "sql": "SELECT 1"}, "sql: There is no such field"),
        ({"panel": 1, "variables": {"run": "x" * 401}}, "at most 400"),
    ],
)
def test_what_cannot_be_asked_is_said(fields, reason):
    with pytest.raises(AskingError, match=reason):
        sql(**fields)


def test_a_body_that_is_no_json_is_refused():
    with pytest.raises(AskingError, match="JSON"):
        asked_from(b"SELECT 1")


def test_panels_of_collapsed_rows_are_found():
    assert panel_of(MODEL, 3)["type"] == "text"


def test_a_broken_file_is_listed_with_the_reason(tmp_path: Path):
    (tmp_path / "Folder").mkdir()
    (tmp_path / "Folder" / "good.json").write_text(json.dumps(MODEL))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("[]")
    found = {each.title: each for each in load_dashboards(tmp_path)}
    assert found["One"].folder == "Folder"
    assert found["broken.json"].error.startswith("broken.json is not a dashboard: Expecting")
    assert found["other.json"].error.startswith("other.json is not a dashboard")
    with pytest.raises(NotThereError, match="no dashboard with the uid 'two'"):
        dashboard("two", tuple(found.values()))


def test_a_changed_file_is_read_again(tmp_path: Path):
    file = tmp_path / "one.json"
    file.write_text(json.dumps(MODEL))
    assert load_dashboards(tmp_path)[0].title == "One"
    file.write_text(json.dumps(MODEL | {"title": "Another title"}))
    assert load_dashboards(tmp_path)[0].title == "Another title"


def test_our_own_dashboards_are_found_by_uid():
    found = load_dashboards(DASHBOARDS_DIR)
    assert dashboard("tidegauge-live", found).title == "Live"
    assert all(not each.error for each in found)
