"""Real clients against a store with the results of a run: each operation of each client.

./tidegauge test clients                    every client
./tidegauge test clients -k "go or Rust"    some of them
"""

import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from services.runtime.settings import ROOT, ServiceSettings
from tests.clients.clients import CLIENTS, OPERATIONS, Client
from tests.clients.expected import EXPECTED
from tests.clients.installing import SOURCES, command_of, missing_tool
from tests.clients.page import MARK, PAGE, table
from tests.clients.task import DATABASE, task
from tests.documentation import replaced
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_http import password
from tests.integration.store_process import until_ready
from tests.integration.test_python_client import WRITE

pytestmark = pytest.mark.clients

PROGRAM_TIMEOUT_S = 600  # clickhouse-sqlalchemy takes minutes for a million rows
CANCELLED = "394"
CANCELLED_WITHIN_S = 15
WRITE_THE_TABLE = "TIDEGAUGE_WRITE_CLIENTS_TABLE"
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Store:
    """A running store, its views, and how many rows of each a client gets."""

    settings: ServiceSettings
    views: dict[str, int]

    @property
    def port(self) -> int:
        return self.settings.port("store")

    def metric(self, line: str) -> float:
        """A counter of the store; 0 if it has not counted yet."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as found:
            lines = found.read().decode().splitlines()
        return sum(float(one.split()[-1]) for one in lines if one.startswith(line))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that serves the events of a recorded run, without a bus."""
    folder = tmp_path_factory.mktemp("store")
    subprocess.run([sys.executable, "-c", WRITE, str(folder)], cwd=ROOT, check=True)
    settings = ServiceSettings(base_port=free_base_port(), data=folder)
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true") as process:
        until_ready(settings, process)
        names = f"SELECT name FROM system.tables WHERE database = '{DATABASE}' ORDER BY name"
        found = asked(settings, f"{names}").split()
        counts = {
            view: int(asked(settings, f"SELECT count() FROM (SELECT * FROM {view} LIMIT 1000)"))
            for view in found
        }
        yield Store(settings, counts)


def asked(settings: ServiceSettings, sql: str) -> str:
    """The answer to a query as text, in tab separated values."""
    url = f"http://127.0.0.1:{settings.port('store')}/?{urllib.parse.urlencode({'query': sql})}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def results(store: Store) -> Any:
    """The results of a client, whose program runs at its first test."""

    @cache
    def of(client: Client) -> Results:
        return run_program(client, store)

    return of


def run_program(client: Client, store: Store) -> Results:
    """What the program of a client printed, by operation."""
    before = store.metric(f'tidegauge_store_queries_failed_total{{code="{CANCELLED}"}}')
    given = task("127.0.0.1", store.port, password(store.settings, "reader"), list(store.views))
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        command_of(client),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        try:
            output, errors = program.communicate(json.dumps(given), PROGRAM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            output, errors = program.communicate()
            errors += f"\nit did not end within {PROGRAM_TIMEOUT_S} s"
    lines = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    found: Results = {line["operation"]: line for line in lines}
    for operation in OPERATIONS:
        found.setdefault(operation, {"ok": False, "detail": f"it ended before: {errors[-3000:]}"})
    cancelled = found["cancel"]
    if cancelled["ok"] and not client.reason("cancel"):
        cancelled["ended"] = was_cancelled(store, before)
    return found


def was_cancelled(store: Store, before: float) -> bool:
    """Whether the store cancelled a query since `before`, soon and not by its time limit."""
    end = time.monotonic() + CANCELLED_WITHIN_S
    while time.monotonic() < end:
        if store.metric(f'tidegauge_store_queries_failed_total{{code="{CANCELLED}"}}') > before:
            return True
        time.sleep(0.2)  # poll interval
    return False


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_carries_out_an_operation(
    client: Client, operation: str, store: Store, results: Any, outcomes: dict[Client, set[str]]
) -> None:
    lack = missing_tool(client) or client.reason(operation)
    if lack:
        pytest.skip(lack)
    found = results(client)[operation]
    assert found["ok"], found["detail"]
    if operation == "views":
        assert found["detail"] == store.views
    else:
        assert EXPECTED[operation](found["detail"]), found["detail"]
    assert found.get("ended", True), "the client went away, and its query went on"
    outcomes.setdefault(client, set()).add(operation)


@pytest.fixture(scope="module")
def outcomes() -> dict[Client, set[str]]:
    """The operations that each client carried out."""
    return {}


def test_the_table_in_the_docs_is_that_of_this_run(outcomes: dict[Client, set[str]]) -> None:
    untried = [client.name for client in CLIENTS if client not in outcomes]
    if untried:
        pytest.skip(f"the table needs a run of all clients; not tried: {', '.join(untried)}")
    page = PAGE.read_text()
    new = replaced(page, MARK, table(outcomes))
    if os.environ.get(WRITE_THE_TABLE):
        PAGE.write_text(new)
    else:
        assert page == new, f"set {WRITE_THE_TABLE}=1 to write it"
