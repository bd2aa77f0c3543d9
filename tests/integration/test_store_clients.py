"""The store as used by real clients: clickhouse-go of Grafana, clickhouse-connect."""

import base64
import gzip
import json
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from services.store.api.native import unframed
from tests.integration.store_http import ask, client, password, refused

pytestmark = pytest.mark.integration


def native_string(data, at):
    """A string in the format Native, shorter than 128 bytes, and the position of the next value."""
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


def test_clickhouse_go_is_greeted_with_revision_0_and_then_gets_plain_native_blocks(empty):
    """The requests of clickhouse-go 2.50 over HTTP with its default options and gzip."""
    plugin = {
        "client_protocol_version": "54483",
        "database": "tidegauge",
        "default_format": "Native",
        "max_execution_time": "60",
    }
    named = {
        "Authorization": "",
        "X-ClickHouse-User": "reader",
        "X-ClickHouse-Key": password(empty, "reader"),
        "User-Agent": "grafana/1 clickhouse-go/2.50.0 (lv:go/1.26; os:linux)",
        "Accept-Encoding": "gzip",
    }
    hello = "SELECT displayName(), version(), revision(), timezone()"
    data, headers = ask(empty, hello, named, **plugin)
    assert data[:8] == b"\x01\x00\x02\xff\xff\xff\xff\x00"
    assert data[8:10] == b"\x04\x01"
    at, values = 10, {}
    for _column in range(4):
        name, at = native_string(data, at)
        kind, at = native_string(data, at)
        assert data[at] == 0  # no custom serialization
        if kind == "UInt32":
            values[name], at = struct.unpack_from("<I", data, at + 1)[0], at + 5
        else:
            values[name], at = native_string(data, at + 1)
    assert at == len(data)
    assert values["revision()"] == 0
    assert values["timezone()"] == "UTC"
    assert values["version()"].startswith("26.")
    assert headers["X-ClickHouse-Format"] == "Native"

    data, headers = ask(empty, "SELECT number FROM numbers(500)", named, query_id="q1", **plugin)
    assert headers["Content-Encoding"] == "gzip"
    assert headers["X-ClickHouse-Query-Id"] == "q1"
    assert json.loads(headers["X-ClickHouse-Summary"])["read_rows"] == "500"
    block = gzip.decompress(data)
    assert block[:2] == b"\x01\xf4"  # one column; no block information before it
    assert native_string(block, 3)[0] == "number"

    code, exception = refused(empty, "SELECT nope FROM runs", headers=named, **plugin)
    assert (code, exception) == (404, "47")
    data, _headers = ask(empty, "SELECT 1", named, **plugin, compress="1")
    assert unframed(data, 100)[:2] == b"\x01\x01"


def test_the_queries_of_grafanas_plugin_about_the_schema_are_answered(empty):
    names = ask(empty, "SELECT name FROM system.databases")[0].decode().split()
    assert "tidegauge" in names
    tables = "SELECT name FROM system.tables WHERE database = 'tidegauge'"
    assert b"latency_summary" in ask(empty, tables)[0]
    columns = (
        "SELECT name, type, table FROM system.columns"
        " WHERE database = 'tidegauge' AND table = 'latency_summary'"
    )
    assert b"p99_ms" in ask(empty, columns)[0]
    for sql in ("SHOW DATABASES", "SHOW TABLES", "DESCRIBE TABLE runs", "EXISTS TABLE runs"):
        assert ask(empty, sql)[0]


def test_the_usual_calls_of_clickhouse_connect_work(empty):
    reader = client(empty, username="reader", password=password(empty, "reader"))
    assert reader.ping()
    answer = reader.query(
        "SELECT number AS n, toString(number) AS s FROM numbers({rows:UInt32})", {"rows": 3}
    )
    assert answer.column_names == ("n", "s")
    assert answer.result_rows == [(0, "0"), (1, "1"), (2, "2")]
    assert answer.summary["read_rows"] == "3"
    frame = reader.query_df("SELECT number AS n FROM numbers(4)")
    assert frame["n"].tolist() == [0, 1, 2, 3]
    assert reader.query_arrow("SELECT number AS n FROM numbers(4)")["n"].to_pylist() == [0, 1, 2, 3]
    assert reader.command("SELECT count() FROM runs") == 0
    assert reader.raw_query("SELECT 1", fmt="JSONEachRow").strip() == b'{"1":1}'
    with reader.query_row_block_stream("SELECT number FROM numbers(200000)") as stream:
        assert sum(len(block) for block in stream) == 200_000
    with reader.query_rows_stream("SELECT number FROM numbers(10)") as stream:
        assert [row[0] for row in stream] == list(range(10))
    with reader.query_df_stream("SELECT number FROM numbers(70000)") as stream:
        assert sum(len(block) for block in stream) == 70_000
    with pytest.raises(DatabaseError, match="READONLY"):
        reader.insert("projection_position", [["a", 0, 1, 0]], column_names="*")
    with pytest.raises(DatabaseError, match="READONLY"):
        reader.command("DROP TABLE runs")
    with pytest.raises(DatabaseError, match="AUTHENTICATION_FAILED"):
        client(empty, username="reader", password="wrong")
    reader.close()


def test_the_admin_inserts_with_clickhouse_connect(empty):
    admin = client(empty, username="admin", password=password(empty, "admin"))
    admin.command("CREATE TABLE letters (a UInt32, b String) ENGINE = MergeTree ORDER BY a")
    admin.insert("letters", [[1, "x"], [2, "y"]], column_names=["a", "b"])
    assert admin.query("SELECT a, b FROM letters ORDER BY a").result_rows == [(1, "x"), (2, "y")]
    admin.command("DROP TABLE letters")
    admin.close()


def test_the_requests_of_the_odbc_driver_are_answered(empty):
    """As its version 1.5.4 sends them: a path, a session, settings, and a format of its own."""
    driver = {
        "default_format": "ODBCDriver2",
        "database": "tidegauge",
        "session_id": "odbc-1",
        "cast_keep_nullable": "1",
        "prefer_column_name_to_alias": "1",
    }
    login = base64.b64encode(f"reader:{password(empty, 'reader')}".encode()).decode()
    named = {"Authorization": f"Basic {login}", "Accept-Encoding": "none"}
    data, headers = ask(empty, "SELECT 1 AS one", named, path="/query", **driver)
    assert headers["X-ClickHouse-Format"] == "ODBCDriver2"
    # Two rows of head, names and types, each with its length; then the cell.
    texts = [b"name", b"one", b"type", b"UInt8", b"1"]
    name, one, kind, uint8, cell = (struct.pack("<i", len(text)) + text for text in texts)
    two = struct.pack("<i", 2)
    assert data == two + two + name + one + two + kind + uint8 + cell
    assert ask(empty, "SELECT * FROM figures LIMIT 1", named, path="/query", **driver)[0]


def test_dbeaver_reads_its_tree_of_tables(empty):
    tables = (
        "SELECT name AS TABLE_NAME, engine AS TABLE_TYPE, comment AS REMARKS, *"
        " FROM system.tables WHERE database = 'tidegauge'"
    )
    assert b"latency_summary\tView" in ask(empty, tables)[0]
    types = "SELECT name FROM VALUES('name String', ('TABLE'), ('VIEW'))"  # the JDBC driver
    assert ask(empty, types)[0] == b"TABLE\nVIEW\n"
    sizes = (
        "SELECT sum(bytes), sum(rows), any(engine) FROM system.parts"
        " WHERE database = 'tidegauge' AND table = 'projection_position'"
    )
    assert ask(empty, sizes)[0] == b"0\t0\t\n"


def test_a_small_answer_is_compressed_if_the_client_asks_for_that(empty):
    gzipped = {"Accept-Encoding": "gzip"}
    data, headers = ask(empty, "SELECT 1", gzipped, enable_http_compression="1")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(data) == b"1\n"
    assert "Content-Encoding" not in ask(empty, "SELECT 1", gzipped)[1]


def test_an_empty_id_is_that_of_no_query(empty):
    with ThreadPoolExecutor(1) as pool:
        endless = "SELECT sum(number) FROM numbers(1000000000000)"
        running = pool.submit(refused, empty, endless, max_execution_time="2")
        while not running.done():
            ask(empty, "KILL QUERY WHERE query_id = '' SYNC")
    assert running.result()[1] == "159"  # the limit of time
