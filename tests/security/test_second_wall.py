"""The first wall is disabled: every query runs unchanged. The second wall must hold by itself."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from services.console.doctor import examine
from services.runtime.landlock import MIN_ABI, LandlockError, abi
from services.runtime.settings import ROOT, ServiceSettings
from services.store.engines.wall import rules_of, want_secrets_outside
from services.store.settings import StoreSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready

pytestmark = [
    pytest.mark.security,
    pytest.mark.skipif(abi() < MIN_ABI, reason="this kernel has no Landlock"),
]
CANARY = "canary-of-the-owner"
SIGNS = (CANARY, "root:", "tests.security")  # a secret, /etc/passwd, a command line
UNTOUCHED = "nobody wrote this\n"

# {secret}, {outside}: files that contain the canary; {link}: a symbolic link in the data folder to
# the latter; {fd}: an open descriptor of the former; {target}: a file to overwrite; {new}: a path
# without a file; {folder}: the folder of outside; {port}: of a listener.
READS = (
    "SELECT * FROM file('{secret}', 'LineAsString')",
    "SELECT * FROM file('{outside}', 'LineAsString')",
    "SELECT * FROM file('{link}', 'LineAsString')",
    "SELECT * FROM file('../outside/canary.csv', 'LineAsString')",
    "SELECT * FROM file('{folder}/*.csv', 'LineAsString')",
    "SELECT * FROM file('{folder}/*', 'One') SETTINGS max_threads = 1",
    "SELECT _path, _file FROM file('{folder}/can*', 'RawBLOB')",
    "SELECT * FROM file('{folder}/canary.tar :: *', 'RawBLOB')",
    "SELECT file('{secret}')",
    "SELECT * FROM `{outside}`",
    "SELECT * FROM fileCluster('default', '{outside}', 'LineAsString')",
    "SELECT * FROM file('/proc/self/environ', 'RawBLOB')",
    "SELECT * FROM file('/proc/thread-self/environ', 'RawBLOB')",
    "SELECT * FROM file('/proc/self/cmdline', 'RawBLOB')",
    "SELECT * FROM file('/proc/self/mem', 'RawBLOB')",
    "SELECT * FROM file('/proc/self/fd/{fd}', 'LineAsString')",
    "SELECT * FROM file('/proc/self/root{secret}', 'LineAsString')",
    "SELECT * FROM file('/proc/self/cwd/../../../../../../../../..{secret}', 'LineAsString')",
    "SELECT * FROM file('/proc/1/environ', 'RawBLOB')",
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM filesystem('{folder}')",
    "SELECT 1 FORMAT Template SETTINGS format_template_resultset = '{outside}'",
    "SELECT 1 FORMAT Template SETTINGS format_template_row = '{outside}'",
    "SELECT 1 AS a FORMAT Protobuf SETTINGS format_schema = '{outside}:M'",
    "SELECT 1 AS a FORMAT CapnProto SETTINGS format_schema = '{outside}:M'",
    "SELECT * FROM sqlite('{folder}/canary.sqlite', 'secrets')",
    "SELECT * FROM icebergLocal('{folder}')",
    "SELECT * FROM deltaLakeLocal('{folder}')",
    "SELECT * FROM executable('cat {secret}', 'LineAsString', 'a String')",
    "SELECT * FROM executable('cat', 'LineAsString', 'a String', (SELECT 1))",
    "SELECT * FROM url('file://{outside}', 'LineAsString')",
    "SELECT * FROM python('open(\"{secret}\").read()')",
    "SELECT catboostEvaluate('{outside}', 1)",
    "CREATE TABLE t_file (a String) ENGINE = File(LineAsString, '{outside}'); ",
    "SELECT * FROM t_file",
    "INSERT INTO FUNCTION null('a String') FROM INFILE '{outside}' FORMAT LineAsString",
    "CREATE TABLE t_in (a String) ENGINE = Memory",
    "INSERT INTO t_in FROM INFILE '{outside}' FORMAT LineAsString",
    "INSERT INTO t_in FROM INFILE '{link}' FORMAT LineAsString",
    "INSERT INTO t_in FROM INFILE '/proc/self/fd/{fd}' FORMAT LineAsString",
    "INSERT INTO t_in FROM INFILE '{folder}/*.csv' FORMAT LineAsString",
    "SELECT * FROM t_in",
    "CREATE DICTIONARY d (a String, b String) PRIMARY KEY a SOURCE(FILE(path '{outside}' format"
    " 'CSV')) LAYOUT(COMPLEX_KEY_HASHED()) LIFETIME(0)",
    "SELECT * FROM d",
    "CREATE DICTIONARY e (a String) PRIMARY KEY a SOURCE(EXECUTABLE(command 'cat {secret}' format"
    " 'TSV')) LAYOUT(COMPLEX_KEY_HASHED()) LIFETIME(0)",
    "SELECT * FROM e",
    "CREATE NAMED COLLECTION c AS path = '{outside}', format = 'LineAsString'",
    "SELECT * FROM file(c)",
    "CREATE FUNCTION f AS () -> file('{secret}')",
    "SELECT f()",
    "CREATE DATABASE fs ENGINE = Filesystem('{folder}')",
    "SELECT * FROM fs.`canary.csv`",
    "CREATE DATABASE lite ENGINE = SQLite('{folder}/canary.sqlite')",
    "SELECT * FROM lite.secrets",
    "ATTACH TABLE a FROM '{folder}' (a String) ENGINE = MergeTree ORDER BY a",
    "ATTACH TABLE a2 FROM '{folder}/part' (a String) ENGINE = Log",
    "SELECT * FROM a2",
    "CREATE TABLE m (a String) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = 'local',"
    " path = '{folder}/')",
    "RESTORE TABLE t_in AS t_back FROM File('{folder}')",
    "SELECT * FROM loop(file('{outside}', 'LineAsString')) LIMIT 1",
    "DESCRIBE TABLE file('{outside}')",
    "SELECT * FROM system.stack_trace",
)
WRITES = (
    "SELECT 'overwritten' INTO OUTFILE '{target}' TRUNCATE",
    "SELECT 'overwritten' INTO OUTFILE '{target}' APPEND",
    "SELECT 'written' INTO OUTFILE '{new}'",
    "SELECT 1 AS `'`, 'written' INTO OUTFILE '{new}.2'",
    "INSERT INTO FUNCTION file('{target}', 'LineAsString', 'a String') SELECT 'appended'",
    "INSERT INTO FUNCTION file('{target}', 'LineAsString', 'a String') SETTINGS"
    " engine_file_truncate_on_insert = 1 SELECT 'overwritten'",
    "INSERT INTO FUNCTION file('{new}', 'LineAsString', 'a String') SELECT 'written'",
    "INSERT INTO FUNCTION file('{folder}/{{_partition_id}}.csv', 'CSV', 'a String') PARTITION BY a"
    " SELECT 'written'",
    "INSERT INTO FUNCTION file('{link_to_target}', 'LineAsString', 'a String') SELECT 'appended'",
    "CREATE TABLE t_out (a String) ENGINE = File(LineAsString, '{target}')",
    "INSERT INTO t_out SELECT 'appended'",
    "TRUNCATE TABLE t_out",
    "CREATE TABLE t_mt (a String) ENGINE = MergeTree ORDER BY a SETTINGS"
    " disk = disk(type = 'local', path = '{folder}/disk/')",
    "INSERT INTO t_mt SELECT 'written'",
    "BACKUP TABLE t_in TO File('{folder}/backup')",
    "BACKUP TABLE t_in TO Disk('default', '../../../outside/backup')",
    "CREATE DATABASE over ENGINE = Atomic SETTINGS disk = disk(type = 'local', path ="
    " '{folder}/over/')",
    "SELECT * FROM executable('sh -c \"echo written > {new}\"', 'TSV', 'a String')",
    "SELECT * FROM sqlite('{new}', 't')",
    "CREATE DATABASE made ENGINE = SQLite('{new}')",
    "SELECT * FROM file('{secret}', 'LineAsString') INTO OUTFILE '{new}.3'",
    "INSERT INTO t_in FROM INFILE '{bad}' FORMAT CSV SETTINGS"
    " input_format_record_errors_file_path = '{new}.4', input_format_allow_errors_num = 9",
    "SYSTEM RELOAD CONFIG",
    "SET log_queries = 1, send_logs_level = 'trace'",
)
CONNECTS = (
    "SELECT * FROM url('http://127.0.0.1:{port}/x', 'LineAsString') SETTINGS http_max_tries = 1",
    "INSERT INTO FUNCTION url('http://127.0.0.1:{port}/x', 'LineAsString', 'a String') SELECT 'x'",
    "SELECT * FROM s3('http://127.0.0.1:{port}/b/k', 'CSV', 'a String')",
    "SELECT * FROM remote('127.0.0.1:{port}', system.one)",
    "SELECT * FROM mysql('127.0.0.1:{port}', 'd', 't', 'u', 'p')",
    "SELECT * FROM postgresql('127.0.0.1:{port}', 'd', 't', 'u', 'p')",
    "SELECT * FROM redis('127.0.0.1:{port}', 'k', 'k String')",
    "SELECT * FROM mongodb('127.0.0.1:{port}', 'd', 'c', 'u', 'p', 'a Int8')",
    "SELECT * FROM azureBlobStorage('http://127.0.0.1:{port}/c', 'c', 'b', 'n', 'aw==')",
    "SELECT hasColumnInTable('127.0.0.1:{port}', 'system', 'one', 'dummy')",
    "CREATE TABLE t_url (a String) ENGINE = URL('http://127.0.0.1:{port}/x', 'CSV')",
    "SELECT * FROM t_url SETTINGS http_max_tries = 1",
)
# Without a wall these do read the file, so an ineffective wall would be detected.
KNOWN_TO_READ = (READS[0], READS[1], READS[11], READS[15])
KNOWN_TO_WRITE = (WRITES[0], WRITES[2])
KNOWN_TO_CONNECT = (CONNECTS[0],)


class Ground:
    """A data folder, and files beside it that must not be reachable from it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.data, outside, self.port = folder / "data", folder / "outside", port
        user_files = self.data / "clickhouse" / "user_files"
        for made in (self.data / "secrets", outside / "part", user_files):
            made.mkdir(parents=True)
        self.secret, self.outside = self.data / "secrets" / "canary", outside / "canary.csv"
        self.target = outside / "target"
        self.secret.write_text(CANARY + "\n")
        self.outside.write_text(CANARY + "\n")
        self.target.write_text(UNTOUCHED)
        (user_files / "link").symlink_to(self.outside)
        (user_files / "link_to_target").symlink_to(self.target)
        (user_files / "bad.csv").write_text('1,2\n"\n')
        self.before = self.files()

    def files(self) -> set[Path]:
        """All files except those in the folder that the engine may write to."""
        found = self.data.parent.rglob("*")
        own = self.data / "clickhouse"
        return {p for p in found if not p.is_relative_to(own) and p.name != "clickhouse.lock"}

    def filled_in(self, query: str) -> str:
        user_files = self.data / "clickhouse" / "user_files"
        return query.format(
            secret=self.secret,
            outside=self.outside,
            link=user_files / "link",
            link_to_target=user_files / "link_to_target",
            bad=user_files / "bad.csv",
            target=self.target,
            new=self.outside.parent / "new",
            folder=self.outside.parent,
            port=self.port,
            fd="{fd}",
        )

    def run(self, kind: str, queries: tuple[str, ...]) -> dict[str, str]:
        """The engine's response to each query."""
        asked = {
            "folder": str(self.data),
            "held": str(self.secret),
            "queries": [self.filled_in(query) for query in queries],
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.unjudged_engine", kind],
            input=json.dumps(asked),
            cwd=ROOT,
            env=os.environ | {"TIDEGAUGE_CLICKHOUSE_PASSWORD": CANARY},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["stands"] is (kind == "walled")
        return dict(zip(queries, found["answers"], strict=True))


@pytest.fixture
def knocks():
    """A listener and its number of connections."""
    found: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, who = server.accept()
                    found.append(who)
                    connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], found


@pytest.fixture
def ground(tmp_path, knocks):
    return Ground(tmp_path, knocks[0])


def test_nothing_beyond_the_folder_is_read_written_or_connected_to(ground, knocks):
    answers = ground.run("walled", (*READS, *WRITES, *CONNECTS))
    reached = [query for query, said in answers.items() if any(sign in said for sign in SIGNS)]
    assert reached == []
    assert ground.target.read_text() == UNTOUCHED
    assert ground.outside.read_text() == ground.secret.read_text() == CANARY + "\n"
    assert ground.files() == ground.before
    assert knocks[1] == []


def test_without_the_wall_the_same_queries_reach(ground, knocks):
    answers = ground.run("open", (*KNOWN_TO_READ, *KNOWN_TO_WRITE, *KNOWN_TO_CONNECT))
    assert [query for query in KNOWN_TO_READ if CANARY not in answers[query]] == []
    assert "overwritten" in ground.target.read_text()
    assert (ground.outside.parent / "new").read_text() == "written\n"
    assert knocks[1] != []


def test_the_engine_goes_on_working_in_its_folder(ground):
    said = ground.run(
        "walled",
        (
            "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a",
            "INSERT INTO t SELECT number FROM numbers(1000000)",
            "OPTIMIZE TABLE t FINAL",
            "SELECT sum(a) FROM t",
            "SELECT count() FROM (SELECT a FROM t ORDER BY sipHash64(a)) SETTINGS"
            " max_bytes_before_external_sort = 100000, max_bytes_ratio_before_external_sort = 0",
            "ALTER TABLE t DELETE WHERE a > 9 SETTINGS mutations_sync = 2",
            "RENAME TABLE t TO t2",
            "DROP TABLE t2 SYNC",
        ),
    )
    assert list(said.values()) == ["", "", "", "499999500000\n", "1000000\n", "", "", ""]


def status(store, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{store.port('store')}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_store_itself_stands_behind_the_wall(tmp_path):
    """A dashboard file that is a symbolic link to a file elsewhere would be served without the
    wall."""
    inside, outside = tmp_path / "dashboards", tmp_path / "outside.json"
    inside.mkdir()
    (inside / "own.json").write_text('{"uid": "own", "title": "Own"}')
    outside.write_text(json.dumps({"uid": "stolen", "title": CANARY}))
    (inside / "stolen.json").symlink_to(outside)
    settings = ServiceSettings(base_port=free_base_port(), data=tmp_path / "data")
    with running_service(
        settings, "store", TIDEGAUGE_OFFLINE="true", TIDEGAUGE_DASHBOARDS_DIR=str(inside)
    ) as process:
        until_ready(settings, process)
        assert status(settings, "/health/wall") == (
            200,
            "The process can open no file but those it serves, nor connect anywhere.\n",
        )
        assert "tidegauge_store_wall 1.0" in status(settings, "/metrics")[1]
        listed = json.loads(status(settings, "/dashboards/api/dashboards")[1])
        assert [found.good for found in examine(settings, running=True) if "open no" in found.text]
    assert {each["uid"]: each["error"] for each in listed} == {
        "own": "",
        "": "stolen.json cannot be read: Permission denied.",
    }


def test_a_process_with_threads_is_not_told_to_stand_behind_a_wall(tmp_path):
    """Existing threads would keep their access."""
    text = (
        "import threading; from services.store.engines.wall import raise_wall;"
        "from services.store.settings import StoreSettings;"
        "from pathlib import Path; import sys; stop = threading.Event();"
        "threading.Thread(target=stop.wait, daemon=True).start();"
        "wall = raise_wall(StoreSettings(data=Path(sys.argv[1]), offline=True));"
        "print(wall.stands, wall.sentence); stop.set()"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "False The process can open every file of its user: 2 threads are already running"
        " and would not be restricted.\n"
    )


def test_secrets_in_a_folder_that_must_be_readable_are_no_wall(tmp_path):
    settings = StoreSettings(data=ROOT / "services" / "data", offline=True)
    with pytest.raises(LandlockError, match=r"the secrets are in .*/services, which it needs"):
        want_secrets_outside(settings, rules_of(settings))
