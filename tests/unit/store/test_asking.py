"""What may be queried over HTTP and how a request is parsed; the DDL's files; resume offsets."""

import pytest

from schemas.percentiles import LEVELS
from services.store.api.http_request import content_type_of, parameters_of, query_of, status_of
from services.store.engine import EngineError, Query
from services.store.engines.schema import ddl_statements, of_percentiles, split_statements
from services.store.policy.permissions import is_function, quoted, refused_setting
from services.store.policy.query_policy import JUDGE
from services.store.projection.inserting import starts
from services.store.settings import PARSING, StoreSettings, bounds

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("may_write", [False, True])
def test_settings_that_open_what_they_name_are_refused_to_everybody(may_write):
    for name in ("format_schema", "FORMAT_SCHEMA_SOURCE", "format_template_row", "url_base"):
        assert refused_setting(name, may_write)
    for name in ("join_use_nulls", "output_format_json_quote_64bit_integers"):
        assert not refused_setting(name, may_write)
    assert refused_setting("async_insert", may_write) != may_write


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({}, 30.0),
        ({"max_execution_time": "7"}, 7.0),
        ({"max_execution_time": "0"}, 30.0),
        ({"max_execution_time": "-1"}, 30.0),
        ({"max_execution_time": "nan"}, 30.0),
        ({"max_execution_time": "31"}, 30.0),
        ({"max_execution_time": "1e-9"}, 0.001),
    ],
)
def test_a_bound_is_tightened_and_never_lifted(asked, given):
    assert bounds(StoreSettings(), asked)["max_execution_time"] == given


@pytest.mark.parametrize("asked", ["0", "-1", "99999999999", "inf", "1e400"])
def test_no_bound_of_parsing_is_lifted(asked):
    for name, limit in PARSING.items():
        assert bounds(StoreSettings(), {name: asked})[name] == limit
    assert bounds(StoreSettings(), {"max_parser_depth": "0.5"})["max_parser_depth"] == 1


def test_a_function_may_be_used_when_it_is_listed_with_combinators_behind_aggregates():
    for name in ("count", "COUNT", "sumIf", "quantileExactWeightedMergeState", "toString", "e"):
        assert is_function(name)
    for name in ("file", "FILE", "fileIf", "toStringIf", "sumIfIfIfIfIf", "newOne", ""):
        assert not is_function(name)


def test_a_literal_keeps_quotes_and_backslashes():
    assert quoted("it's \\ \0") == "'it\\'s \\\\ \\0'"


def test_the_query_is_the_parameter_followed_by_the_body():
    target = "query=SELECT%201&database=default&default_format=JSON&param_x=5&max_threads=2&user=u"
    assert query_of(parameters_of(target), b"+ 1") == Query(
        "SELECT 1\n+ 1", "JSON", "tidegauge", {"max_threads": "2"}, {"x": "5"}
    )


def test_a_request_that_says_nothing_else_is_answered_from_the_projection_as_tab_separated():
    assert query_of({}, b"SELECT 1") == Query("SELECT 1", "TabSeparated", "tidegauge", {}, {})


def test_the_bytes_behind_an_insert_are_its_data():
    insert = "INSERT INTO t (a) FORMAT Native"
    behind = query_of({}, insert.encode() + b"\n\xff\n")
    beside = query_of({"query": insert}, b"\xff\n")
    assert (behind.text.strip(), behind.data) == (insert, b"\xff\n")
    assert (beside.text, beside.data) == (insert, b"\xff\n")


def test_headers_go_before_parameters():
    headers = {"X-ClickHouse-Format": "JSON", "X-ClickHouse-Database": "system"}
    asked = query_of({"default_format": "CSV", "database": "x"}, b"SELECT 1", headers=headers)
    assert (asked.output_format, asked.database) == ("JSON", "system")


def test_another_database_is_refused():
    with pytest.raises(EngineError, match="UNKNOWN_DATABASE"):
        query_of({"database": "mysql"}, b"SELECT 1")
    with pytest.raises(EngineError, match="UNKNOWN_DATABASE"):
        query_of({}, b"SELECT 1", headers={"X-ClickHouse-Database": "mysql"})


def test_a_request_has_a_bounded_number_of_parameters():
    assert len(parameters_of("&".join(f"a{number}=1" for number in range(1000)))) == 1000
    with pytest.raises(EngineError, match="at most 1000 parameters"):
        parameters_of("a=1&" * 1001)


def test_what_clients_send_on_connect_is_accepted_and_ignored():
    asked = {
        "async_insert": "0",
        "add_http_cors_header": "1",
        "log_queries": "0",
        "allow_experimental_json_type": "1",
        "http_max_uri_size": "1048576",
        "readonly": "2",
        "join_use_nulls": "1",
    }
    assert JUDGE.settings(Query("SELECT 1", settings=asked), {}) == {"join_use_nulls": "1"}


def test_a_setting_that_reaches_further_is_refused_by_its_name():
    for name in ("allow_ddl", "format_schema", "http_allow_table_as_file", "s3_max_connections"):
        with pytest.raises(EngineError, match=name):
            JUDGE.settings(Query("SELECT 1", settings={name: "1"}), {})


def test_an_error_keeps_its_code_and_becomes_a_status():
    error = EngineError("Code: 60. DB::Exception: Table x does not exist. (UNKNOWN_TABLE)")
    assert (error.code, status_of(error.code)) == (60, 404)
    assert (EngineError("boom").code, status_of(1002)) == (1002, 500)


def test_json_is_served_as_json_and_the_unknown_as_text():
    assert content_type_of("JSON").startswith("application/json")
    assert content_type_of("Vertical").startswith("text/plain")


def test_statements_end_with_a_semicolon_at_the_end_of_a_line():
    text = (
        "-- a; b\nCREATE TABLE a (x Int8 COMMENT 'one; two');\n\n"
        "CREATE TABLE b\n  (y Int8) ;\n-- end\n"
    )
    assert split_statements(text) == (
        "CREATE TABLE a (x Int8 COMMENT 'one; two')",
        "CREATE TABLE b\n  (y Int8)",
    )


def test_a_line_with_a_percentile_stands_for_one_of_each():
    text = "SELECT q({levels})(x) AS q,\n  q[{place}] AS {percentile}, -- {title} x\n  '{}' AS y"
    lines = of_percentiles(text).splitlines()
    assert lines[0] == f"SELECT q({', '.join(map(str, LEVELS.values()))})(x) AS q,"
    assert lines[1] == "  q[1] AS p5, -- 5th percentile of the x"
    assert lines[3] == "  q[3] AS p50, -- Median x"
    assert lines[-2:] == ["  q[9] AS p99999, -- 99.999th percentile of the x", "  '{}' AS y"]


def test_the_first_statement_of_the_ddl_makes_the_database():
    assert next(iter(ddl_statements())).startswith("CREATE DATABASE IF NOT EXISTS tidegauge")


def test_reading_begins_where_the_projection_ends_or_at_the_first_record_kept():
    bounds = {("a", 0): (0, 9), ("a", 1): (5, 9), ("b", 0): (2, 9)}
    assert starts({("a", 0): 4, ("a", 1): 3}, bounds) == {("a", 0): 4, ("a", 1): 5, ("b", 0): 2}


def test_a_bus_that_ends_before_the_projection_is_another_bus():
    with pytest.raises(ValueError, match="a/0 ends at offset 3, but records before 4"):
        starts({("a", 0): 4}, {("a", 0): (0, 3)})
