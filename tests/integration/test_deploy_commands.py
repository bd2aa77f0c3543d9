"""What `deploy/compose` starts, started here as processes against a real broker."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource

from services.runtime.kafka import admin_client
from services.runtime.settings import ROOT, ServiceSettings
from tests.contract.compose import PARTS, value_of
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.integration

# In the order in which they wait for each other.
STARTED = ("conductor", "generator", "runner", "evaluator", "collector", "store")
READY_DEADLINE_S = 90
OF_THE_IMAGE = {"CLUSTER_ID", "KAFKA_HEAP_OPTS"}


def environment(name: str, broker: ServiceSettings, base_port: int, data: Path) -> dict[str, str]:
    """That of compose.yaml, with the addresses and folders of this machine."""
    given = dict(PARTS[name]["environment"])
    here = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": broker.bootstrap,
        "TIDEGAUGE_HOST": "127.0.0.1",
        "TIDEGAUGE_DATA": str(data),
        "TIDEGAUGE_STORE_URL": f"http://127.0.0.1:{base_port + 2}",
    }
    # There is no ClickHouse server here, so the store keeps its own engine.
    given = {key: text for key, text in given.items() if "CLICKHOUSE" not in key}
    replaced = {key: here.get(key, value_of(text)) for key, text in given.items()}
    return os.environ | replaced | {"TIDEGAUGE_BASE_PORT": str(base_port), "PYTHONPATH": str(ROOT)}


def command(words: list[str]) -> list[str]:
    """A command of compose.yaml with the interpreter of this environment."""
    words = words[1:] if words[0] == "CMD" else words
    assert words[0] == "python"
    return [sys.executable, *words[1:]]


def run(words: list[str], variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(words), env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_commands_and_health_checks_of_compose_work_and_the_console_finds_the_store(
    broker: ServiceSettings, tmp_path: Path
) -> None:
    base_port = free_base_port()
    processes = {}
    try:
        for name in STARTED:
            variables = environment(name, broker, base_port, tmp_path)
            check = PARTS[name]["healthcheck"]["test"]
            assert run(check, variables).returncode == 1  # nothing is there yet
            processes[name] = subprocess.Popen(command(PARTS[name]["command"]), env=variables)
        deadline = time.monotonic() + READY_DEADLINE_S
        waiting = list(STARTED)
        while waiting:
            name = waiting[0]
            assert time.monotonic() < deadline, f"{name} does not become ready"
            assert processes[name].poll() is None, f"{name} ended"
            check = PARTS[name]["healthcheck"]["test"]
            if run(check, environment(name, broker, base_port, tmp_path)).returncode == 0:
                waiting.pop(0)
        console = PARTS["console"]
        variables = environment("console", broker, base_port, tmp_path)
        asked = run([*console["entrypoint"], "sql", "SELECT 40 + 2 AS answer"], variables)
        assert "42" in asked.stdout, asked.stderr
        status = run([*console["entrypoint"], *console["command"]], variables)
        assert status.returncode == 0, status.stderr
        assert "SQL http://127.0.0.1:17072" in status.stdout  # where compose.yaml publishes it
        refused = run([*console["entrypoint"], "down"], variables)
        assert refused.returncode == 2
        assert "the services run elsewhere" in refused.stderr
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(60)


def test_the_health_check_of_kafka_finds_a_broker_and_where_there_is_none(
    broker: ServiceSettings,
) -> None:
    program, *words = PARTS["kafka"]["healthcheck"]["test"][1:]
    for port, code in ((broker.port("kafka"), 0), (free_base_port(), 1)):
        here = [word.replace("9092", str(port)) for word in words]
        done = subprocess.run([program, *here], capture_output=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr


def test_kafka_knows_every_setting_that_compose_gives_it(broker: ServiceSettings) -> None:
    admin = admin_client(broker, "tests")
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    known = set(admin.describe_configs([resource])[resource].result(timeout=15))
    given = set(PARTS["kafka"]["environment"]) - OF_THE_IMAGE
    names = {name.removeprefix("KAFKA_").lower().replace("_", ".") for name in given}
    assert names - known == set()
    assert "no.such.setting" not in known
