"""SQL attacks as data: the judge rejects all of them, and harmless queries that look similar run.

`Watched` is the judge used by engines; it records the queries that it accepts. No later defence
takes part: tests/security/sql_attacks.toml is rejected before the engine runs any of it.
"""

import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from services.store.engine import EngineError, Query
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import ddl_statements
from services.store.policy.permissions import quoted
from services.store.policy.query_policy import JUDGE
from services.store.settings import PARSING, StoreSettings
from services.store.users import kept_passwords
from tests.security.sql_mutations import mutations

pytestmark = pytest.mark.security

FOLDER = Path(__file__).parent
ATTACKS = tomllib.loads((FOLDER / "sql_attacks.toml").read_text())
HARMLESS = tomllib.loads((FOLDER / "sql_harmless.toml").read_text())
GROUPS = ATTACKS["attack"]
CANARY = "tidegauge-never-read"
SEED = 20261122
MUTATIONS = 4
NOWHERE = "http://127.0.0.1:1"
FREE = dict.fromkeys((*PARSING, "max_execution_time", "max_memory_usage"), "0")


class Watched:
    """The judge used by engines; `passed`: the queries it accepted."""

    def __init__(self):
        self.passed = []

    def settings(self, query, bounds):
        return JUDGE.settings(query, bounds)

    def statement(self, query, engine_reads):
        statement = JUDGE.statement(query, engine_reads)
        self.passed.append(statement.text)
        return statement


class Site:
    """An engine with its folder, and files around it that must be neither read nor written."""

    def __init__(self, folder):
        data = folder / "data"
        self.secrets = kept_passwords(data / "secrets")
        self.paths = {
            "secret": data / "secrets" / "clickhouse-admin",
            "outside": folder / "outside.csv",
            "target": folder / "target.out",
        }
        self.paths["outside"].write_text(f"{CANARY}\n")
        self.judge = Watched()
        self.engine = ChdbEngine(StoreSettings(data=data), judge=self.judge)
        self.engine.execute(ddl_statements())
        self.before = self.files(folder)
        self.folder = folder

    def files(self, folder):
        found = (path for path in folder.rglob("*") if "data/clickhouse" not in str(path))
        return {path: path.stat().st_mtime_ns for path in found if path.is_file()}

    def filled(self, text):
        for name, path in self.paths.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text.replace("{nowhere}", NOWHERE)

    def refusal(self, query):
        """The reason for rejecting a query; fails if the query was accepted or anything leaked."""
        self.judge.passed.clear()
        with pytest.raises(EngineError) as caught:
            self.engine.answer(query)
        said = str(caught.value)
        assert not self.judge.passed, query
        assert not any(secret in said for secret in (CANARY, *self.secrets)), query
        return said


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    found = Site(tmp_path_factory.mktemp("attacked"))
    yield found
    found.engine.close()


def asked(site, group, text, user):
    def filled(values):
        return {name: site.filled(value) for name, value in values.items()}

    return Query(
        site.filled(text),
        group.get("format", "TabSeparated"),
        settings=filled(group.get("settings", {})),
        parameters=filled(group.get("parameters", {})),
        may_write=user == "admin",
    )


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["about"])
def test_an_attack_is_refused_before_the_engine_runs_it(site, group):
    for text in group["texts"]:
        for user in group["users"]:
            said = site.refusal(asked(site, group, text, user))
            says = group["says"] + ("|can be run here" if user == "reader" else "")
            assert re.search(says, said), (text, said)
    assert site.files(site.folder) == site.before


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["about"])
def test_an_attack_in_another_writing_is_refused_too(site, group):
    for text in group["texts"]:
        for user in group["users"]:
            for other in mutations(text, SEED, MUTATIONS):
                site.refusal(asked(site, group, other, user))
    assert site.files(site.folder) == site.before


def test_there_are_a_thousand_attempts_and_more():
    given = sum(len(group["texts"]) * len(group["users"]) for group in GROUPS)
    others = {
        (other, user)
        for group in GROUPS
        for text in group["texts"]
        for user in group["users"]
        for other in mutations(text, SEED, MUTATIONS)
    }
    assert given >= 850
    assert len(others) >= 3_000


@pytest.mark.parametrize("user", ["reader", "admin"])
@pytest.mark.parametrize("asks", [{}, FREE], ids=["", "without bounds"])
def test_what_nests_or_grows_without_end_is_refused_in_milliseconds(site, user, asks):
    for group in ATTACKS["deep"]:
        for opening, middle, closing in group["shapes"]:
            times = group["times"]
            text = f"SELECT {opening * times}{middle}{closing * times}"
            settings = asks if user == "reader" else {}
            query = Query(text, settings=settings, may_write=user == "admin")
            started_s = time.thread_time()  # of this thread only, independent of the machine's load
            site.refusal(query)
            assert time.thread_time() - started_s < 0.5, text[:60]  # it takes at most 30 ms


def test_what_only_looks_like_an_attack_is_answered(site):
    for user in (False, True):
        for text in HARMLESS["texts"]:
            site.engine.answer(Query(text, parameters=HARMLESS["parameters"], may_write=user))
    assert len(HARMLESS["texts"]) >= 150


def test_no_system_table_shows_a_path_or_what_cannot_be_read(site):
    for text in (
        "SELECT * FROM system.tables",
        "SELECT * FROM system.databases",
        "SELECT COLUMNS('path') FROM system.tables",
        "SELECT * FROM system.parts",
        "SELECT * FROM system.columns",
        "SELECT * FROM information_schema.tables",
        "SHOW TABLES FROM system",
    ):
        found = site.engine.answer(Query(text)).data.decode()
        assert str(site.folder) not in found, text
        assert "named_collections" not in found, text
    sql = "SELECT name FROM system.tables WHERE database = 'system'"
    for name in site.engine.answer(Query(sql)).data.decode().split():
        site.engine.answer(Query(f"SELECT * FROM system.{name} LIMIT 1"))


@pytest.mark.parametrize("ending", [" SETTINGS {}", " FORMAT TSV SETTINGS {}", " settings {};"])
def test_settings_at_the_end_tighten_bounds_and_lift_none(site, ending):
    value = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    said = site.engine.answer(Query(value + ending.format("max_execution_time = 7"))).data
    assert said == b"7\n"
    for asked in ("max_execution_time = 0", "max_execution_time = 31", "readonly = 0"):
        site.refusal(Query(value + ending.format(asked)))


def test_a_system_database_as_the_current_one_shows_no_more(site):
    asked = Query("SELECT currentDatabase()", database="system")
    assert site.engine.answer(asked).data == b"system\n"
    for text in (
        "SELECT * FROM users",
        "SELECT 1 IN users",
        "SELECT * FROM tables",
        "SELECT data_paths FROM tables",
        "SELECT * FROM processes",
        "SELECT * FROM parts",
        "DESCRIBE users",
        "EXISTS users",
        "SHOW COLUMNS FROM users",
        "SHOW CREATE TABLE users",
        "WITH users AS (SELECT 1) SELECT * FROM users",
        "SELECT * FROM view(SELECT * FROM users)",
        "CREATE TABLE x (a Int8) ENGINE = Memory",
        "DROP TABLE one",
        "INSERT INTO one VALUES (1)",
    ):
        for may_write in (False, True):
            site.refusal(replace(asked, text=text, may_write=may_write))


def test_the_admin_changes_tables_of_the_database(site):
    for text in HARMLESS["admin"]:
        site.engine.answer(Query(text, may_write=True))
        if not text.startswith("SELECT"):
            assert "READONLY" in site.refusal(Query(text))


@pytest.mark.parametrize(
    "value",
    [
        "file('{secret}')",
        "file(assumeNotNull('{secret}'))",
        "file('{secret}') || ''",
        "(SELECT file('{secret}'))",
        "concat('a', 'b')",
    ],
)
def test_no_expression_among_the_data_of_an_insert_is_evaluated(site, value):
    """The judge does not see the data, so the engine must read them as plain values only."""
    for text in (
        f"INSERT INTO projection_position (topic) VALUES ({value})",
        f"INSERT INTO projection_position (topic) VALUES ({value}), ({value})",
        f"/* x */ insert into projection_position (topic) FORMAT Values\n({value})",
    ):
        with pytest.raises(EngineError, match=r"Interpreting expressions is disabled|Cannot parse"):
            site.engine.answer(Query(site.filled(text), may_write=True))
    assert site.engine.rows("SELECT count() AS n FROM tidegauge.projection_position") == [{"n": 0}]


def test_an_attack_as_a_literal_is_only_a_literal(site):
    for group in GROUPS:
        for text in group["texts"]:
            whole = site.filled(text)
            if "\0" in whole or whole.lower().count("between") > 4:
                continue
            answer = site.engine.answer(Query(f"SELECT {quoted(whole)}", "RawBLOB"))
            assert answer.data.decode() == whole


def test_what_a_parameter_says_is_only_a_value(site):
    for value in ("1, file('/etc/hostname')", "'", "a' OR '1'='1", "\\'", "}", "`"):
        given = {"v": value.replace("\\", "\\\\")}
        answer = site.engine.answer(Query("SELECT {v:String}", "RawBLOB", parameters=given))
        assert answer.data.decode() == value
