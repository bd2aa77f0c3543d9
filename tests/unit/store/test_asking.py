"""What may be asked over HTTP and how a request is read; the DDL's files; where to go on."""

import pytest

from services.store.ddl import ddl_statements, split_statements
from services.store.engine import EngineError, Query
from services.store.http_query import content_type_of, parameters_of, query_of, status_of
from services.store.permissions import (
    format_clause,
    quoted,
    refusal,
    refusal_to_admin,
    refused_setting,
)
from services.store.positions import starts

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT 1",
        "WITH 1 AS a SELECT a",
        "SHOW TABLES FROM tidegauge",
        "DESCRIBE TABLE tidegauge.runs",
        "EXISTS TABLE tidegauge.runs",
        "EXPLAIN SELECT 1",
        "SELECT 'file(' AS x, profile FROM t",
        "SELECT 'it\\'s into outfile'",
        "(SELECT 1) UNION ALL (SELECT 2)",
    ],
)
def test_a_query_that_only_reads_the_projection_may_be_run(formatted):
    assert refusal(formatted, "") is None


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT 1 INTO OUTFILE '/tmp/x' FORMAT JSON",
        "SELECT file('/etc/passwd')",
        "SELECT * APPLY file FROM t",
        "SELECT arrayMap(file, ['/etc/passwd'])",
        "SELECT '\\'', `File`('x')",
        "SELECT * FROM Python(os)",
        "SELECT dictGetOrDefault('a', 'b', 1, 2)",
        "SELECT aiGenerate('x')",
        "SELECT reverseDNSQuery('1.2.3.4')",
        "SHOW PROCESSLIST",
        "SHOW FULL CLUSTERS",
        "SHOW GRANTS",
        "SET readonly = 0",
        "KILL QUERY WHERE 1",
        "DROP TABLE t",
        "USE default",
        "",
    ],
)
def test_a_query_that_reaches_beyond_the_projection_is_refused(formatted):
    assert refusal(formatted, "") is not None


@pytest.mark.parametrize(
    "formatted",
    [
        "SELECT 1 SETTINGS max_execution_time = 0",
        "SELECT 1 SETTINGS join_use_nulls = 1, max_execution_time = 0 FORMAT JSON",
        "SELECT * FROM (SELECT 1 SETTINGS MAX_EXECUTION_TIME = 0)",
    ],
)
def test_the_reader_does_not_lift_its_bounds_in_the_text(formatted):
    assert "max_execution_time" in (refusal(formatted, "", ("max_execution_time",)) or "").lower()
    assert refusal(formatted, "", ()) is None


def test_a_bound_may_be_spoken_of():
    asked = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    assert refusal(asked, "", ("max_execution_time",)) is None


@pytest.mark.parametrize("judge", [refusal, refusal_to_admin])
def test_formats_with_a_template_or_a_schema_are_refused(judge):
    tree = "SelectWithUnionQuery (children 1)\n Literal UInt64_1\n"
    for name in ("Template", "protobuf", "CapnProto", "Prometheus", "NoSuchFormat"):
        assert "format" in (judge(f"SELECT 1 FORMAT {name}", tree) or "")
    for name in ("JSONEachRow", "TSVWithNames", "Native", "`Null`"):
        assert judge(f"SELECT 1 FORMAT {name}", tree) is None


@pytest.mark.parametrize("may_write", [False, True])
def test_settings_that_open_what_they_name_are_refused_to_everybody(may_write):
    for name in ("format_schema", "FORMAT_SCHEMA_SOURCE", "format_template_row", "url_base"):
        assert refused_setting(name, may_write)
    for name in ("join_use_nulls", "output_format_json_quote_64bit_integers"):
        assert not refused_setting(name, may_write)
    assert refused_setting("allow_ddl", may_write) != may_write


def test_the_format_of_a_query_is_found_only_in_its_own_clause():
    assert format_clause("SELECT 1 FORMAT JSON") == "JSON"
    assert format_clause("SELECT 1 FORMAT CSV SETTINGS max_threads = 1") == "CSV"
    assert format_clause("SELECT ' FORMAT JSON'") is None


def test_a_literal_keeps_quotes_and_backslashes():
    assert quoted("it's \\ \0") == "'it\\'s \\\\ \\0'"


TREE = """SelectWithUnionQuery (children 1)
 ExpressionList (children 1)
  SelectQuery (children 2)
   ExpressionList (children 1)
    {selected}
   TablesInSelectQuery (children 1)
    TablesInSelectQueryElement (children 1)
     TableExpression (children 1)
      {table}
"""
ONE = "Literal UInt64_1"
ALL = "Asterisk"
COUNT_ALL = "Function count (children 1)\n     ExpressionList (children 1)\n      Asterisk"


@pytest.mark.parametrize(
    ("selected", "table"),
    [
        (ALL, "TableIdentifier tidegauge.runs (alias r)"),
        (ALL, "TableIdentifier runs"),
        (ONE, "Function numbers (children 1)"),
        (ONE, "TableIdentifier system.tables"),
        (COUNT_ALL, "TableIdentifier system.tables"),
        ("Identifier r.system", "TableIdentifier runs (alias r)"),
        ("Function url (children 1)", "TableIdentifier runs"),
    ],
)
def test_tables_of_the_projection_and_some_of_the_system_may_be_read(selected, table):
    assert refusal("SELECT 1", TREE.format(selected=selected, table=table)) is None


@pytest.mark.parametrize(
    ("selected", "table"),
    [
        (ONE, "Function url (children 1)"),
        (ONE, "Function eval (children 1)"),
        (ONE, "TableIdentifier system.users"),
        (ONE, "TableIdentifier default.t"),
        ("Identifier system.users", "TableIdentifier runs"),
        (ALL, "TableIdentifier system.tables (alias t)"),
        ("QualifiedAsterisk (children 1)", "TableIdentifier system.databases"),
        ("ColumnsRegexpMatcher", "TableIdentifier system.tables"),
    ],
)
def test_other_tables_table_functions_and_paths_may_not_be_read(selected, table):
    assert refusal("SELECT 1", TREE.format(selected=selected, table=table)) is not None


@pytest.mark.parametrize(
    "tree",
    [
        "Explain EXPLAIN PIPELINE (children 1)\n InsertQuery   (children 2)\n  Function url",
        "Explain EXPLAIN TABLE OVERRIDE (children 2)\n Function mysql (children 1)",
        "InsertQuery   (children 2)\n Identifier t",
        "ParallelWithQuery 2 SelectWithUnionQuery (children 2)",
        "SHOW CREATE USER query\nShowCreateAccessEntityQuery",
    ],
)
def test_no_other_kind_of_query_hides_in_one_that_reads(tree):
    assert refusal("EXPLAIN SELECT 1", tree) is not None


@pytest.mark.parametrize(
    "formatted",
    [
        "ALTER TABLE t ADD COLUMN a Int8",
        "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a",
        "INSERT INTO t (a) FORMAT Native",
    ],
)
def test_the_admin_may_change_tables(formatted):
    assert refusal_to_admin(formatted, "") is None


@pytest.mark.parametrize(
    "formatted",
    [
        "CREATE TABLE t (a Int8) ENGINE = URL('http://x', CSV)",
        "CREATE DATABASE d ENGINE = MySQL('h', 'd', 'u', 'p')",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a",
        "CREATE FUNCTION f AS x -> x",
        "CREATE USER u",
        "ALTER TABLE t FREEZE",
        "SYSTEM SHUTDOWN",
        "BACKUP TABLE t TO Disk('d', 'x')",
        "ATTACH TABLE t FROM '/x' (a Int8) ENGINE = Log",
    ],
)
def test_not_even_the_admin_reaches_beyond_the_database(formatted):
    assert refusal_to_admin(formatted, "") is not None


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


def test_another_database_and_native_compression_are_refused():
    with pytest.raises(EngineError, match="UNKNOWN_DATABASE"):
        query_of({"database": "system"}, b"SELECT * FROM users")
    with pytest.raises(EngineError, match="NOT_IMPLEMENTED"):
        query_of({"compress": "1"}, b"SELECT 1")


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


def test_the_first_statement_of_the_ddl_makes_the_database():
    assert next(iter(ddl_statements())).startswith("CREATE DATABASE IF NOT EXISTS tidegauge")


def test_reading_begins_where_the_projection_ends_or_at_the_first_record_kept():
    bounds = {("a", 0): (0, 9), ("a", 1): (5, 9), ("b", 0): (2, 9)}
    assert starts({("a", 0): 4, ("a", 1): 3}, bounds) == {("a", 0): 4, ("a", 1): 5, ("b", 0): 2}


def test_a_bus_that_ends_before_the_projection_is_another_bus():
    with pytest.raises(ValueError, match="a/0 ends at offset 3, but records before 4"):
        starts({("a", 0): 4}, {("a", 0): (0, 3)})
