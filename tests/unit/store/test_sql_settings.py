"""SETTINGS at the end of a query become settings of the request; SET, USE, KILL; ad-hoc filters."""

import pytest

from services.store.engine import EngineError, Query
from services.store.policy.reader_views import redirected
from services.store.policy.sql_statements import (
    filters_of,
    killed_query,
    lifted,
    settings_of,
    used_database,
    want_tighter,
)
from services.store.settings import StoreSettings, bounds

pytestmark = pytest.mark.unit
MOST = bounds(StoreSettings(), {})


@pytest.mark.parametrize(
    ("text", "left", "settings"),
    [
        ("SELECT 1 SETTINGS a = 1", "SELECT 1 ", {"a": "1"}),
        ("SELECT 1 settings a=-1.5, b = 'x''y\\'z';", "SELECT 1 ", {"a": "-1.5", "b": "x'y'z"}),
        ("SELECT 1 SETTINGS a = true FORMAT CSV", "SELECT 1 FORMAT CSV", {"a": "1"}),
        ("SELECT 1 FORMAT CSV SETTINGS a = 2", "SELECT 1 FORMAT CSV ", {"a": "2"}),
        ("SELECT 1 SETTINGS a = 1 FORMAT CSV SETTINGS b = 2", "SELECT 1 FORMAT CSV ", None),
        ("SHOW TABLES SETTINGS a = 1", "SHOW TABLES ", {"a": "1"}),
        ("(SELECT 1) SETTINGS a = 1", "(SELECT 1) ", {"a": "1"}),
        ("SELECT 1 -- x\nSETTINGS a = 1 -- y", "SELECT 1 -- x\n", {"a": "1"}),
    ],
)
def test_settings_at_the_end_are_taken_from_the_text(text, left, settings):
    found = lifted(Query(text, settings={"z": "0"}), MOST)
    expected = {"a": "1", "b": "2"} if settings is None else settings
    assert (found.text, found.settings) == (left, {"z": "0", **expected})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT settings FROM t",
        "SELECT 'x SETTINGS a = 1'",
        "SELECT * FROM (SELECT 1 SETTINGS a = 1)",
        "SELECT 1 UNION ALL (SELECT 2 SETTINGS a = 1)",
        "SELECT 1 SETTINGS a = b",
        "SELECT 1 SETTINGS a = DEFAULT",
        "SELECT 1 SETTINGS a = {p:UInt8}",
        "SELECT 1 SETTINGS a = (SELECT 1)",
        "SELECT 1 SETTINGS a = 1 + 1",
        "SELECT 1 SETTINGS a = 1,",
        "SELECT 1 SETTINGS a `=` 1",
        "SELECT 1 AS `)` SETTINGS `a` = 1",
        "SELECT 1 SETTINGS a = 'unfinished",
        "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS index_granularity = 1",
        "INSERT INTO t SETTINGS async_insert = 1 VALUES (1)",
    ],
)
def test_anything_else_stays_in_the_text_to_be_judged_there(text):
    assert lifted(Query(text), MOST) == Query(text)


def test_settings_of_the_text_go_before_those_of_the_request():
    asked = Query("SELECT 1 SETTINGS max_threads = 1", settings={"max_threads": "7"})
    assert lifted(asked, MOST).settings == {"max_threads": "1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_execution_time", "31"),
        ("max_execution_time", "0"),
        ("max_execution_time", "nan"),
        ("max_memory_usage", "-1"),
        ("max_result_rows", "inf"),
        ("readonly", "0"),
    ],
)
def test_no_bound_is_lifted_by_the_text(name, value):
    with pytest.raises(EngineError, match=f"{name} cannot be changed here"):
        want_tighter({name: value}, MOST)


def test_a_smaller_bound_and_an_unbounded_setting_are_let_through():
    want_tighter({"max_execution_time": "0.5", "readonly": "2", "extremes": "1"}, MOST)


def test_break_cuts_at_the_number_asked_for_and_keeps_the_bound_of_the_store():
    broken = bounds(StoreSettings(), {"max_result_rows": "200", "result_overflow_mode": "break"})
    assert (broken["limit"], broken["max_result_rows"]) == (200, 1_000_000)
    assert broken["result_overflow_mode"] == "throw"
    assert "limit" not in bounds(StoreSettings(), {"max_result_rows": "200"})
    assert "limit" not in bounds(StoreSettings(), {"result_overflow_mode": "break"})


def test_a_shorter_time_may_end_a_query_with_what_it_has():
    asked = {"max_execution_time": "1", "timeout_overflow_mode": "break"}
    assert bounds(StoreSettings(), asked)["timeout_overflow_mode"] == "break"
    longer = {"max_execution_time": "31", "timeout_overflow_mode": "break"}
    assert bounds(StoreSettings(), longer)["timeout_overflow_mode"] == "throw"


def test_statements_of_a_session_are_read():
    assert settings_of("SET a = 1, b = 'x';") == {"a": "1", "b": "x"}
    assert settings_of("SELECT 1") is None
    assert settings_of("SET ROLE x") is None
    assert used_database("use `system`;") == "system"
    assert used_database("SELECT 1") is None
    assert killed_query("KILL QUERY WHERE query_id = 'x''y' ASYNC") == "x'y"
    assert killed_query("KILL QUERY WHERE query_id = 'x' OR 1") is None
    assert killed_query("KILL QUERY WHERE 1") is None


def test_the_conditions_of_ad_hoc_filters_are_read_by_table():
    value = "{'runs' : ' run_id = \\'a\\' ', 't' : '1'}"
    assert filters_of(value) == {"runs": " run_id = 'a' ", "t": "1"}
    assert filters_of("{}") == {}
    for other in (
        "",
        "x",
        "{'a'}",
        "{'a':}",
        "{'a':'b' 'c':'d'}",
        "{'a':1}",
        "{'a':'b'",
        "{a:'b'}",
    ):
        assert filters_of(other) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM system.tables", "SELECT * FROM tidegauge_system.tables"),
        ('SELECT 1 FROM `system`."parts" AS p', "SELECT 1 FROM tidegauge_system.parts AS p"),
        ("SELECT 'system.tables' FROM system.one", "SELECT 'system.tables' FROM system.one"),
        ("SELECT x.system.tables FROM y", "SELECT x.system.tables FROM y"),
        ("SHOW CREATE TABLE system.tables", "SHOW CREATE TABLE system.tables"),
        (
            "SHOW FULL TABLES FROM system NOT LIKE 'a%' LIMIT 2 FORMAT CSV",
            "SELECT name, 'SYSTEM VIEW' AS table_type FROM tidegauge_system.tables WHERE database ="
            " 'system' AND name NOT LIKE 'a%' ORDER BY name LIMIT 2 FORMAT CSV",
        ),
        ("SHOW TABLES FROM system WHERE 1", "SHOW TABLES FROM system WHERE 1"),
        ("SHOW TABLES", "SHOW TABLES"),
        (
            "SELECT 1 FROM INFORMATION_SCHEMA.TABLES",
            "SELECT 1 FROM tidegauge_system.information_tables",
        ),
    ],
)
def test_system_tables_are_replaced_by_their_views(text, found):
    assert redirected(text) == found
