"""Parts of a real stack are killed with -9 while a run goes on."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from deploy.local.stack import Stack
from schemas import catalogue
from services.runtime.kafka import assigned_consumer, watermarks
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import ROOT, CommandLine
from tests.integration.kafka_broker import free_base_port

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

DEADLINE_S = 120
KILLS = 10
# Topics of which an event becomes several rows.
SEVERAL_ROWS = (catalogue.LATENCY, catalogue.PAIRS, catalogue.METRICS)
# A budget that ten deaths do not use up, without longer and longer waiting.
GENEROUS = {"TIDEGAUGE_MAX_RESTARTS": "50", "TIDEGAUGE_RESTART_WINDOW_S": "1"}


class Killable:
    """A stack that runs by itself, and its parts."""

    def __init__(self, data: Path) -> None:
        self.settings = ServiceSettings(data=data, base_port=free_base_port())
        self.tidegauge = CommandLine(data, self.settings.base_port)

    def start(self) -> None:
        done = self.tidegauge("up", "--detach", **GENEROUS)
        assert done.returncode == 0, done.stderr

    def services(self) -> dict[str, dict[str, object]]:
        done = self.tidegauge("status", "--json")
        return {service["name"]: service for service in json.loads(done.stdout)["services"]}

    def kill(self, name: str) -> None:
        services = Stack(self.settings).status().services
        os.kill(next(s.pid for s in services if s.name == name), signal.SIGKILL)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        environment = os.environ | {
            "TIDEGAUGE_DATA": str(self.settings.data),
            "TIDEGAUGE_BASE_PORT": str(self.settings.base_port),
        }
        command = [str(ROOT / "tidegauge"), "run", "--pipeline", "calibration", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def sql(self, sql: str) -> list[dict[str, object]]:
        done = self.tidegauge("sql", sql, "--format", "JSONEachRow")
        return (
            [json.loads(line) for line in done.stdout.splitlines()] if not done.returncode else []
        )

    def phase(self) -> str:
        rows = self.sql("SELECT phase FROM runs ORDER BY requested_at DESC LIMIT 1")
        return str(rows[0]["phase"]) if rows else ""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Killable]:
    found = Killable(tmp_path)
    found.start()
    yield found
    found.tidegauge("down")


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        threading.Event().wait(0.1)


def on_the_bus(settings: ServiceSettings) -> dict[str, int]:
    """Records of each results topic."""
    consumer = assigned_consumer(settings, "tests")
    try:
        found = {t: watermarks(consumer, TopicPartition(t, 0)) for t in catalogue.RESULTS}
        return {topic: end - low for topic, (low, end) in found.items()}
    finally:
        consumer.close()


def test_a_store_killed_ten_times_in_a_run_has_every_row_once(stack: Killable) -> None:
    report_path = stack.settings.data / "report.json"
    # The load lasts longer than the kills, some six seconds each, so that there is always more.
    run = stack.begin("--rate", "200", "--duration", "150", "--report", str(report_path))
    eventually(lambda: stack.phase() == "measure", "the load goes on")
    counted = "SELECT count() AS n FROM results_latency"
    for number in range(1, KILLS + 1):
        before = stack.sql(counted)
        eventually(lambda before=before: stack.sql(counted) not in ([], before), "it projects")
        stack.kill("store")
        again = {"state": "ready", "restarts": number}
        eventually(lambda again=again: stack.services()["store"].items() >= again.items(), "serves")
    output, errors = run.communicate(timeout=2 * DEADLINE_S)
    assert run.returncode == 0, output + errors
    report = json.loads(report_path.read_text())
    assert (report["valid"], report["conclusion"]["clean"]) == (True, True)
    assert stack.services()["store"]["restarts"] == KILLS

    rebuilt = stack.tidegauge("rebuild")  # 0 only if every table holds the same rows as before
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert json.loads(stack.tidegauge("report", report["run_id"], "--json").stdout) == report
    for topic, events in on_the_bus(stack.settings).items():
        sql = (
            "SELECT count() AS n, uniqExact(_offset) AS events"
            f" FROM {catalogue.record_of(topic)} WHERE _offset < {events}"
        )
        eventually(
            lambda sql=sql, events=events: int(str(stack.sql(sql)[0]["events"])) == events,
            f"all events of {topic} are rows",
        )
        rows = int(str(stack.sql(sql)[0]["n"]))
        assert rows == events if topic not in SEVERAL_ROWS else rows >= events, topic


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("generator", "generator was ended by SIGKILL in the middle of the run."),
        ("conductor", "The conductor was ended while the run was going on."),
        ("spark_pipeline", "spark_pipeline was ended by SIGKILL in the middle of the run."),
    ],
)
def test_a_run_that_loses_its_leader_or_its_load_is_invalid_and_the_next_is_not(
    stack: Killable, part: str, reason: str
) -> None:
    report_path = stack.settings.data / "report.json"
    options = ("--rate", "100", "--duration", "20", "--report", str(report_path))
    run = stack.begin(*options)
    eventually(lambda: stack.phase() == "measure", "the load goes on")
    stack.kill(part)
    output, errors = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 1, output + errors
    assert json.loads(report_path.read_text())["invalid_reasons"] == [reason]
    after = stack.begin("--rate", "100", "--duration", "5")
    output, errors = after.communicate(timeout=DEADLINE_S)
    assert after.returncode == 0, output + errors


@pytest.mark.parametrize("part", ["collector", "evaluator"])
def test_a_run_goes_on_when_what_only_watches_it_is_killed(stack: Killable, part: str) -> None:
    report_path = stack.settings.data / "report.json"
    run = stack.begin("--rate", "100", "--duration", "20", "--report", str(report_path))
    eventually(lambda: stack.phase() == "measure", "the load goes on")
    stack.kill(part)
    output, errors = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0, output + errors
    assert json.loads(report_path.read_text())["conclusion"]["clean"]
    assert stack.services()[part]["restarts"] == 1
