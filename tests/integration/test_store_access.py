"""The store over HTTP without a bus: who may ask what, and the clients people use."""

import gzip
import json
import socket
import stat
import struct
import urllib.error
import urllib.parse
import urllib.request

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from services.runtime.settings import ServiceSettings
from services.store.permissions import TABLE_FUNCTIONS
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready

pytestmark = pytest.mark.integration
SECRET = "tidegauge-never-read"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Settings of a store that answers SQL over an empty projection."""
    folder = tmp_path_factory.mktemp("store")
    settings = ServiceSettings(base_port=free_base_port(), data=folder)
    (folder / "secret.csv").write_text(SECRET)
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true") as process:
        until_ready(settings, process)
        yield settings


def password(store, name):
    return (store.data / "secrets" / f"clickhouse-{name}").read_text().strip()


def ask(store, sql, headers=None, method="POST", **parameters):
    url = f"http://127.0.0.1:{store.port('store')}/?{urllib.parse.urlencode(parameters)}"
    body = None if method == "GET" else sql if isinstance(sql, bytes) else sql.encode()
    request = urllib.request.Request(url, body, headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers


def refused(store, sql, **options):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(store, sql, **options)
    return caught.value.code, caught.value.headers["X-ClickHouse-Exception-Code"]


def client(store, **options):
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=store.port("store"), autogenerate_session_id=False, **options
    )


@pytest.mark.parametrize(
    "sql",
    [
        # files
        "SELECT * FROM file('{secret}', 'LineAsString')",
        "SELECT file('{secret}')",
        "SELECT arrayMap(file, ['{secret}'])",
        "SELECT * APPLY(file) FROM (SELECT '{secret}')",
        "SELECT * APPLY(x -> `fi\\x6ce`(x)) FROM (SELECT '{secret}')",
        "SELECT * FROM `{secret}`",
        "SELECT * FROM filesystem('/')",
        "DESCRIBE TABLE file('{secret}')",
        "EXPLAIN PLAN SELECT * FROM file('{secret}')",
        "SELECT 1 IN (SELECT * FROM file('{secret}', 'LineAsString'))",
        "SELECT 1 INTO OUTFILE '{secret}.out'",
        "SELECT 1 INTO/**/OUTFILE '{secret}.out' FORMAT CSV",
        "SELECT * FROM fileCluster('c', '{secret}')",
        "SELECT * FROM sqlite('{secret}', 't')",
        "SELECT * FROM icebergLocal('/tmp')",
        "SELECT * FROM deltaLakeLocal('/tmp')",
        # elsewhere
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT * FROM s3('http://127.0.0.1:1/b/k', 'CSV')",
        "SELECT * FROM gcs('http://127.0.0.1:1/b/k', 'CSV')",
        "SELECT * FROM azureBlobStorage('c', 'b', 'k')",
        "SELECT * FROM hdfs('hdfs://127.0.0.1:1/x', 'CSV')",
        "SELECT * FROM remote('127.0.0.1:1', system.one)",
        "SELECT * FROM remoteSecure('127.0.0.1:1', system.one)",
        "SELECT * FROM cluster('default', system.one)",
        "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
        "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')",
        "SELECT * FROM mongodb('127.0.0.1:1', 'd', 'c', 'u', 'p', 'a Int8')",
        "SELECT * FROM redis('127.0.0.1:1', 'k', 'k String')",
        "SELECT * FROM odbc('DSN=x', 'd', 't')",
        "SELECT * FROM jdbc('x', 'd', 't')",
        "SELECT hasColumnInTable('127.0.0.1:1', 'system', 'one', 'dummy')",
        "SELECT reverseDNSQuery('127.0.0.1')",
        "SELECT aiGenerate('c', 'x')",
        # programs
        "SELECT * FROM executable('id', 'TSV', 'a String')",
        "SELECT * FROM Python(os)",
        "SELECT * FROM eval('SELECT 1')",
        "SELECT catboostEvaluate('/x', 1)",
        # dictionaries and other detours
        "SELECT dictGet('d', 'a', 1)",
        "SELECT * FROM dictionary('d')",
        "SELECT joinGet('t', 'a', 1)",
        "SELECT * FROM merge('system', '.*')",
        "SELECT * FROM loop(system.users)",
        "SELECT * FROM viewExplain('', '', (SELECT 1))",
        "SELECT * FROM view(SELECT * FROM url('http://127.0.0.1:1/'))",
        "WITH x AS (SELECT * FROM url('http://127.0.0.1:1/')) SELECT * FROM x",
        # system tables that tell more than the results
        "SELECT * FROM system.users",
        "SELECT * FROM system.grants",
        "SELECT * FROM system.processes",
        "SELECT * FROM system.server_settings",
        "SELECT * FROM system.disks",
        "SELECT * FROM system.parts",
        "SELECT * FROM system.tables",
        "SELECT data_paths FROM system.tables",
        "SELECT `data_path` FROM system.databases",
        "SELECT COLUMNS('path') FROM system.tables",
        "SELECT 1 IN system.users",
        "SELECT 1 IN system.`users`",
        "SELECT (SELECT any(name) FROM `system`.`users`)",
        "SELECT * FROM system.stack_trace",
        "SELECT * FROM system.named_collections",
        "SHOW PROCESSLIST",
        "SHOW GRANTS",
        "SHOW CREATE USER default",
        "SHOW ACCESS",
        "SHOW CREATE ROLE x",
        "SHOW FULL CLUSTERS",
        "SHOW CREATE DICTIONARY d",
        "SELECT * FROM default.t",
        # settings
        "SET max_execution_time = 0",
        "SET readonly = 0",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT 1 SETTINGS max_execution_time = 1000",
        "SELECT 1 SETTINGS max_memory_usage = 0",
        "SELECT 1 SETTINGS max_threads = 64",
        "SELECT 1 SETTINGS s3_max_connections = 7",
        # more than one statement
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE results_latency",
        # whatever changes something
        "INSERT INTO projection_position SELECT 'a', 0, 1, 0",
        "INSERT INTO projection_position VALUES ('a', 0, 1, 0)",
        "INSERT INTO FUNCTION file('{secret}.out') SELECT 1",
        "WITH 1 AS a INSERT INTO projection_position SELECT 'a', 0, a, 0",
        "EXPLAIN PIPELINE INSERT INTO FUNCTION url('http://127.0.0.1:1/') SELECT 1",
        "EXPLAIN INSERT INTO projection_position SELECT 'a', 0, 1, 0",
        "EXPLAIN TABLE OVERRIDE mysql('127.0.0.1:1', 'd', 't', 'u', 'p') PARTITION BY a",
        "SELECT * FROM (EXPLAIN PIPELINE INSERT INTO FUNCTION file('{secret}.out') SELECT 1)",
        "SELECT 1 PARALLEL WITH DROP TABLE results_latency",
        "CREATE TABLE x (a Int8) ENGINE = Memory",
        "CREATE TEMPORARY TABLE x (a Int8)",
        "CREATE TABLE x AS url('http://127.0.0.1:1/')",
        "CREATE DATABASE x",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(NULL()) LAYOUT(FLAT()) LIFETIME(0)",
        "CREATE FUNCTION f AS x -> x",
        "CREATE USER x",
        "CREATE NAMED COLLECTION c AS a = 1",
        "GRANT ALL ON *.* TO default",
        "EXECUTE AS default SELECT 1",
        "ALTER TABLE results_latency DELETE WHERE 1",
        "DELETE FROM results_latency WHERE 1",
        "UPDATE results_latency SET latency_ms = 1 WHERE 1",
        "TRUNCATE TABLE results_latency",
        "DROP TABLE results_latency",
        "DROP DATABASE tidegauge",
        "UNDROP TABLE results_latency",
        "RENAME TABLE results_latency TO x",
        "EXCHANGE TABLES results_latency AND runs",
        "OPTIMIZE TABLE results_latency",
        "DETACH TABLE results_latency",
        "ATTACH TABLE x FROM '/tmp' (a Int8) ENGINE = Log",
        "CHECK TABLE results_latency",
        "KILL QUERY WHERE 1",
        "SYSTEM SHUTDOWN",
        "SYSTEM FLUSH LOGS",
        "BACKUP DATABASE tidegauge TO File('{secret}.out')",
        "USE system",
        "BEGIN TRANSACTION",
        "",
    ],
)
def test_the_reader_can_do_nothing_but_read_the_results(store, sql):
    secret = store.data / "secret.csv"
    key = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": password(store, "reader")}
    for headers in ({}, key):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(store, sql.replace("{secret}", str(secret)), headers)
        assert 400 <= caught.value.code < 600
        assert SECRET not in caught.value.read().decode()
    assert sorted(path.name for path in store.data.glob("secret*")) == ["secret.csv", "secrets"]


def test_every_table_function_of_the_engine_is_refused_unless_it_is_listed(store):
    """So that one which a new version of the engine brings is refused too."""
    names = ask(store, "SELECT name FROM system.table_functions")[0].decode().split()
    assert len(names) > 80
    for name in set(names) - TABLE_FUNCTIONS:
        for sql in (f"SELECT * FROM `{name}`('a', 'b')", f"DESCRIBE TABLE `{name}`('a', 'b')"):
            assert refused(store, sql)[0] in (400, 403), sql


def test_settings_that_reach_further_are_refused_as_parameters_too(store):
    for name in ("readonly", "max_execution_time"):
        ask(store, "SELECT 1", **{name: "0"})  # bounds are kept, whatever is asked for
    value = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    assert ask(store, value, max_execution_time="0")[0] == b"30\n"
    assert ask(store, value, max_execution_time="7")[0] == b"7\n"
    for name in ("allow_introspection_functions", "allow_ddl", "s3_max_connections", "profile"):
        assert refused(store, "SELECT 1", **{name: "1"}) == (403, "164")


def test_parameters_cannot_name_a_table_that_cannot_be_read(store):
    sql = "SELECT 1 FROM {t:Identifier}"
    assert ask(store, sql, param_t="runs")[0] == b""
    assert refused(store, sql, param_t="system.users") == (403, "164")
    both = "SELECT 1 FROM {d:Identifier}.{t:Identifier}"
    assert refused(store, both, param_d="system", param_t="users") == (403, "164")


def test_passwords_open_and_wrong_ones_do_not(store):
    reader = password(store, "reader")
    pair = urllib.request.HTTPPasswordMgrWithPriorAuth()
    pair.add_password(None, f"http://127.0.0.1:{store.port('store')}/", "reader", reader, True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(pair))
    with opener.open(f"http://127.0.0.1:{store.port('store')}/?query=SELECT+1") as answer:
        assert answer.read() == b"1\n"
    assert ask(store, "SELECT 1", user="reader", password=reader)[0] == b"1\n"
    for user, key in (("reader", "x"), ("admin", reader), ("admin", ""), ("root", "")):
        assert refused(store, "SELECT 1", user=user, password=key) == (403, "516")


def test_password_files_are_their_owners_only(store):
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (store.data / "secrets").iterdir()]
    assert modes == [0o600, 0o600]


def test_a_page_of_elsewhere_gets_nothing_not_even_by_a_name_that_resolves_to_loopback(store):
    assert refused(store, "SELECT 1", headers={"Host": "evil.example"})[0] == 403
    assert refused(store, "SELECT 1", headers={"Origin": "http://evil.example"})[0] == 403
    local = f"localhost:{store.port('store')}"
    assert ask(store, "SELECT 1", headers={"Host": local})[0] == b"1\n"


def test_the_admin_can_change_tables_but_reach_nothing_else(store):
    key = {"user": "admin", "password": password(store, "admin")}
    ask(
        store, "CREATE TABLE notes (run String, note String) ENGINE = MergeTree ORDER BY run", **key
    )
    ask(store, "INSERT INTO notes VALUES ('a', 'one')", **key)
    ask(store, b"INSERT INTO notes FORMAT CSV\nb,two\nc,three\n", **key)
    assert (
        ask(store, "SELECT run, note FROM notes ORDER BY run")[0] == b"a\tone\nb\ttwo\nc\tthree\n"
    )
    ask(store, "DROP TABLE notes", **key)
    for sql in (
        "CREATE TABLE x (a String) ENGINE = URL('http://127.0.0.1:1/', 'CSV')",
        "CREATE TABLE x AS file('/etc/passwd', 'LineAsString')",
        "CREATE TABLE x (a String) ENGINE = File(CSV)",
        "INSERT INTO FUNCTION file('/tmp/tidegauge-never') SELECT 1",
        "SELECT * FROM url('http://127.0.0.1:1/')",
        "SYSTEM SHUTDOWN",
    ):
        assert refused(store, sql, **key) == (403, "164")


def native_string(data, at):
    """A string of format Native and where the next value begins; shorter than 128 bytes."""
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


def test_clickhouse_go_is_greeted_with_revision_0_and_then_gets_plain_native_blocks(store):
    """What clickhouse-go 2.50 sends over HTTP with its default options and gzip."""
    plugin = {
        "client_protocol_version": "54483",
        "database": "tidegauge",
        "default_format": "Native",
        "max_execution_time": "60",
    }
    named = {
        "Authorization": "",
        "X-ClickHouse-User": "reader",
        "X-ClickHouse-Key": password(store, "reader"),
        "User-Agent": "grafana/1 clickhouse-go/2.50.0 (lv:go/1.26; os:linux)",
        "Accept-Encoding": "gzip",
    }
    hello = "SELECT displayName(), version(), revision(), timezone()"
    data, headers = ask(store, hello, named, **plugin)
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

    data, headers = ask(store, "SELECT number FROM numbers(500)", named, query_id="q1", **plugin)
    assert headers["Content-Encoding"] == "gzip"
    assert headers["X-ClickHouse-Query-Id"] == "q1"
    assert json.loads(headers["X-ClickHouse-Summary"])["read_rows"] == "500"
    block = gzip.decompress(data)
    assert block[:2] == b"\x01\xf4"  # one column; no block information before it
    assert native_string(block, 3)[0] == "number"

    code, exception = refused(store, "SELECT nope FROM runs", headers=named, **plugin)
    assert (code, exception) == (404, "47")
    assert refused(store, "SELECT 1", headers=named, **plugin, compress="1") == (501, "48")


def test_the_queries_of_grafanas_plugin_about_the_schema_are_answered(store):
    names = ask(store, "SELECT name FROM system.databases")[0].decode().split()
    assert "tidegauge" in names
    tables = "SELECT name FROM system.tables WHERE database = 'tidegauge'"
    assert b"latency_summary" in ask(store, tables)[0]
    columns = (
        "SELECT name, type, table FROM system.columns"
        " WHERE database = 'tidegauge' AND table = 'latency_summary'"
    )
    assert b"p99_ms" in ask(store, columns)[0]
    for sql in ("SHOW DATABASES", "SHOW TABLES", "DESCRIBE TABLE runs", "EXISTS TABLE runs"):
        assert ask(store, sql)[0]


def test_the_usual_calls_of_clickhouse_connect_work(store):
    reader = client(store, username="reader", password=password(store, "reader"))
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
        client(store, username="reader", password="wrong")
    reader.close()


def test_the_admin_inserts_with_clickhouse_connect(store):
    admin = client(store, username="admin", password=password(store, "admin"))
    admin.command("CREATE TABLE letters (a UInt32, b String) ENGINE = MergeTree ORDER BY a")
    admin.insert("letters", [[1, "x"], [2, "y"]], column_names=["a", "b"])
    assert admin.query("SELECT a, b FROM letters ORDER BY a").result_rows == [(1, "x"), (2, "y")]
    admin.command("DROP TABLE letters")
    admin.close()


def test_a_client_that_sends_half_a_request_does_not_hold_up_others(store):
    with socket.create_connection(("127.0.0.1", store.port("store"))) as half:
        half.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nSELECT")
        assert ask(store, "SELECT 1")[0] == b"1\n"


def test_nothing_of_the_passwords_is_in_a_log_or_a_metric(store, capfd):
    secrets = [password(store, name) for name in ("reader", "admin")]
    refused(store, "SELECT 1", user="reader", password=secrets[1])
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{store.port('store')}/metrics").read()
    written = metrics.decode() + "".join(capfd.readouterr())
    assert not any(secret in written for secret in secrets)
