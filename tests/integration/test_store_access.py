"""Access control of the store over HTTP, without a bus."""

import os
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

from services.runtime.settings import ROOT
from services.store.policy.permissions import FORMATS, TABLE_FUNCTIONS
from tests.integration.kafka_broker import free_base_port
from tests.integration.store_http import SECRET, ask, password, refused

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT file('{secret}')", (403, "164")),
        ("SELECT * FROM `{secret}`", (403, "164")),
        ("SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')", (403, "164")),
        ("SELECT * FROM system.users", (403, "164")),
        ("DROP TABLE results_latency", (403, "164")),
        ("SELECT 1; SELECT 2", (400, "62")),
        ("", (403, "164")),
    ],
)
def test_the_reader_can_do_nothing_but_read_the_results(empty, sql, told):
    """As are all texts of tests/security/sql_attacks.toml."""
    secret = empty.data / "secret.csv"
    key = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": password(empty, "reader")}
    for headers in ({}, key):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(empty, sql.replace("{secret}", str(secret)), headers)
        code = caught.value.headers["X-ClickHouse-Exception-Code"]
        assert (caught.value.code, code) == told
        assert SECRET not in caught.value.read().decode()
    assert sorted(path.name for path in empty.data.glob("secret*")) == [
        "secret.csv",
        "secrets",
    ]


def test_every_table_function_of_the_engine_is_refused_unless_it_is_listed(empty):
    """Therefore functions of new engine versions are refused, too."""
    names = ask(empty, "SELECT name FROM system.table_functions")[0].decode().split()
    assert len(names) > 80
    for name in set(names) - TABLE_FUNCTIONS:
        for sql in (f"SELECT * FROM `{name}`('a', 'b')", f"DESCRIBE TABLE `{name}`('a', 'b')"):
            assert refused(empty, sql)[0] in (400, 403), sql


def test_settings_that_reach_further_are_refused_as_parameters_too(empty):
    for name in ("readonly", "max_execution_time"):
        ask(empty, "SELECT 1", **{name: "0"})  # bounds apply, whatever the request says
    value = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    assert ask(empty, value, max_execution_time="0")[0] == b"30\n"
    assert ask(empty, value, max_execution_time="7")[0] == b"7\n"
    for name in ("allow_introspection_functions", "allow_ddl", "s3_max_connections", "profile"):
        assert refused(empty, "SELECT 1", **{name: "1"}) == (403, "164")


@pytest.mark.parametrize("user", ["", "reader", "admin"])
@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        # An invalid template is shown in the error; a schema is written to the given path.
        ("SELECT 1", {"default_format": "Template", "format_template_row": "{secret}"}),
        ("SELECT 1", {"default_format": "template", "format_template_row": "{secret}"}),
        ("SELECT 1 FORMAT Template", {"format_template_resultset": "{secret}"}),
        ("SELECT 1 FORMAT `Template`", {"format_template_row": "{secret}"}),
        ("SELECT 1 FORMAT Template SETTINGS format_template_row = '{secret}'", {}),
        ("SELECT 1 SETTINGS format_template_row = '{secret}' FORMAT Template", {}),
        ("SELECT 1 AS a", {"default_format": "Protobuf", "output_format_schema": "{secret}.out"}),
        ("SELECT 1 AS a FORMAT ProtobufSingle", {"output_format_schema": "{secret}.out"}),
        ("SELECT 1 AS a FORMAT Protobuf SETTINGS output_format_schema = '{secret}.out'", {}),
        ("SELECT 1 AS a", {"default_format": "CapnProto", "output_format_schema": "{secret}.out"}),
        ("SELECT 1", {"default_format": "Protobuf", "format_schema": "{secret}:x"}),
        (
            "SELECT 1 AS a",
            {
                "default_format": "Protobuf",
                "format_schema_source": "query",
                "format_schema": "SELECT 1",
            },
        ),
        ("SELECT 1 FORMAT AvroConfluent", {}),
        (
            "SELECT 1",
            {
                "default_format": "AvroConfluent",
                "format_avro_schema_registry_url": "http://127.0.0.1:1",
            },
        ),
        ("SELECT 1", {"input_format_record_errors_file_path": "{secret}.out"}),
        ("SELECT 1", {"FORMAT_SCHEMA": "{secret}"}),
        ("SELECT 1", {"format_display_secrets_in_show_and_select": "1"}),
        ("SELECT 1 FORMAT MySQLWire", {}),
        ("SELECT 1 FORMAT PNG", {}),
    ],
)
def test_no_format_or_setting_opens_a_file_or_calls_another_machine(empty, sql, asked, user):
    secret = str(empty.data / "secret.csv")
    given = {name: value.replace("{secret}", secret) for name, value in asked.items()}
    if user:
        given |= {"user": user, "password": password(empty, user)}
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(empty, sql.replace("{secret}", secret), **given)
    assert caught.value.code == 403
    assert SECRET not in caught.value.read().decode()
    assert not list(empty.data.glob("secret.csv?*"))


def test_an_insert_names_no_format_that_opens_a_file(empty):
    key = {"user": "admin", "password": password(empty, "admin")}
    ask(empty, "CREATE TABLE lines (line String) ENGINE = Memory", **key)
    try:
        for name in ("Template", "Protobuf", "CapnProto"):
            sql = f"INSERT INTO lines FORMAT {name}\nx\n".encode()
            assert refused(empty, sql, **key) == (403, "164")
    finally:
        ask(empty, "DROP TABLE lines", **key)


def test_every_format_that_is_let_through_is_one_of_rows_alone(empty):
    """Formats of new engine versions must be reviewed first."""
    names = ask(empty, "SELECT name FROM system.formats WHERE is_output")[0].decode().split()
    let_through = {name for name in names if FORMATS.fullmatch(name)}
    assert set(names) - let_through == {
        "AvroConfluent",
        "Buffers",
        "GeoJSON",
        "PNG",
        "PostgreSQLWire",
        "MySQLWire",
        "Prometheus",
        "Protobuf",
        "ProtobufList",
        "ProtobufSingle",
        "Template",
    }


def test_parameters_cannot_name_a_table_that_cannot_be_read(empty):
    sql = "SELECT 1 FROM {t:Identifier}"
    assert ask(empty, sql, param_t="runs")[0] == b""
    assert refused(empty, sql, param_t="system.users") == (403, "164")
    both = "SELECT 1 FROM {d:Identifier}.{t:Identifier}"
    assert refused(empty, both, param_d="system", param_t="users") == (403, "164")


def test_passwords_open_and_wrong_ones_do_not(empty):
    reader = password(empty, "reader")
    pair = urllib.request.HTTPPasswordMgrWithPriorAuth()
    pair.add_password(None, f"http://127.0.0.1:{empty.port('store')}/", "reader", reader, True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(pair))
    with opener.open(f"http://127.0.0.1:{empty.port('store')}/?query=SELECT+1") as answer:
        assert answer.read() == b"1\n"
    assert ask(empty, "SELECT 1", user="reader", password=reader)[0] == b"1\n"
    for user, key in (("reader", "x"), ("admin", reader), ("admin", ""), ("root", "")):
        assert refused(empty, "SELECT 1", user=user, password=key) == (403, "516")


def test_password_files_are_their_owners_only(empty):
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (empty.data / "secrets").iterdir()]
    assert modes == [0o600, 0o600]


def test_a_page_of_elsewhere_gets_nothing_not_even_by_a_name_that_resolves_to_loopback(empty):
    assert refused(empty, "SELECT 1", headers={"Host": "evil.example"})[0] == 403
    assert refused(empty, "SELECT 1", headers={"Origin": "http://evil.example"})[0] == 403
    local = f"localhost:{empty.port('store')}"
    assert ask(empty, "SELECT 1", headers={"Host": local})[0] == b"1\n"


def test_the_admin_can_change_tables_but_reach_nothing_else(empty):
    key = {"user": "admin", "password": password(empty, "admin")}
    ask(
        empty,
        "CREATE TABLE notes (run String, note String) ENGINE = MergeTree ORDER BY run",
        **key,
    )
    ask(empty, "INSERT INTO notes VALUES ('a', 'one')", **key)
    ask(empty, b"INSERT INTO notes FORMAT CSV\nb,two\nc,three\n", **key)
    with_settings = "INSERT INTO notes (note, run) SETTINGS max_insert_block_size = 10 FORMAT CSV"
    ask(empty, f"{with_settings}\nfour,d\n".encode(), **key)
    notes = b"a\tone\nb\ttwo\nc\tthree\nd\tfour\n"
    assert ask(empty, "SELECT run, note FROM notes ORDER BY run")[0] == notes
    ask(empty, "DROP TABLE notes", **key)
    for sql in (
        "CREATE TABLE x (a String) ENGINE = URL('http://127.0.0.1:1/', 'CSV')",
        "CREATE TABLE x AS file('/etc/passwd', 'LineAsString')",
        "CREATE TABLE x (a String) ENGINE = File(CSV)",
        "INSERT INTO FUNCTION file('/tmp/tidegauge-never') SELECT 1",
        "INSERT INTO projection_position FROM INFILE '/etc/hostname' FORMAT CSV",
        "SELECT * FROM url('http://127.0.0.1:1/')",
        "SYSTEM SHUTDOWN",
    ):
        assert refused(empty, sql, **key) == (403, "164")


def test_a_client_that_sends_half_a_request_does_not_hold_up_others(empty):
    with socket.create_connection(("127.0.0.1", empty.port("store"))) as half:
        half.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nSELECT")
        assert ask(empty, "SELECT 1")[0] == b"1\n"


def test_nothing_of_the_passwords_is_in_a_log_or_a_metric(empty, capfd):
    secrets = [password(empty, name) for name in ("reader", "admin")]
    refused(empty, "SELECT 1", user="reader", password=secrets[1])
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{empty.port('store')}/metrics").read()
    written = metrics.decode() + "".join(capfd.readouterr())
    assert not any(secret in written for secret in secrets)


@pytest.mark.parametrize("name", ["reader", "admin"])
@pytest.mark.parametrize("kept", [0, 5])
def test_a_password_that_was_cut_off_ends_the_store_with_a_sentence(tmp_path, name, kept):
    """A crash or a full disk during the first start leaves such files."""
    path = tmp_path / "secrets" / f"clickhouse-{name}"
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    path.write_text("only for this test"[:kept])
    store = {
        "TIDEGAUGE_OFFLINE": "true",
        "TIDEGAUGE_DATA": str(tmp_path),
        "TIDEGAUGE_BASE_PORT": str(free_base_port()),
    }
    done = subprocess.run(
        [sys.executable, "-m", "services.store"],
        cwd=ROOT,
        env=os.environ | store,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    mistake = "has fewer than 16 characters" if kept else "is empty"
    sentence = f"the secret {path} {mistake}; remove it, and a new one is created"
    assert done.stderr.splitlines()[-1] == f"tidegauge: store: {sentence}"
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
