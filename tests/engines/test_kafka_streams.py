"""Kafka Streams: both implementations are exact in every domain, after a kill, in transactions, and
with an increasing number of threads."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from schemas.catalogue import ENGINE_PREFIX
from services.definitions.engines import load_engine
from services.runtime.kafka import open_client_properties
from services.runtime.settings import ServiceSettings
from tests.end_to_end.documented import of_the_machine, told_invalid
from tests.end_to_end.workload_files import changed_workload, patient_workload
from tests.engines.runs import Runs, runs_of

pytestmark = pytest.mark.engines

PROCESSORS, DSL = "kafka-streams", "kafka-streams-dsl"
TRAFFIC = ["ingest", "parse", "join", "tumbling", "sliding"]
TRANSACTIONS = """
name = "transactions"
summary = "-"
engine = "kafka-streams"
guarantee = "exactly-once"
commit_interval_ms = 100
store = "rocksdb"
"""


NETWORK = """
kills = [
    { target = "network", at_s = 2, for_s = 3 },
    { target = "network", at_s = 17, signal = "pause", for_s = 3 },
    { target = "network", at_s = 32, signal = "slow", for_s = 3, delay_ms = 300 },
]
"""
LOST = ("missing", "wrong", "unexpected")


@pytest.fixture(scope="module")
def processors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of(PROCESSORS, tmp_path_factory.mktemp("kafka-streams"), 21_870) as found:
        yield found


@pytest.fixture(scope="module")
def dsl(processors: Runs) -> Runs:
    return Runs(processors.command, DSL)


def topics_of_engines(runs: Runs) -> list[str]:
    """Existing topics that were created by engines."""
    settings = ServiceSettings(data=runs.command.data, base_port=runs.command.base_port)
    admin = AdminClient(open_client_properties(settings, "tests"))
    return [name for name in admin.list_topics(timeout=30).topics if name.startswith(ENGINE_PREFIX)]


def test_processors_publish_every_stage_and_leave_no_topic(processors: Runs) -> None:
    assert processors.exact("traffic") == TRAFFIC
    assert processors.exact("gem_packs") == [
        *("ingest", "parse", "revenue", "conversions", "average", "highest"),
        *("enriched", "offers", "dear", "dear_average", "total"),
    ]
    assert processors.exact("flights") == [
        *("ingest", "parse", "area", "emergencies", "departures", "countries", "cells")
    ]
    assert topics_of_engines(processors) == []


def test_the_dsl_publishes_every_stage_but_those_that_wait_for_event_time(dsl: Runs) -> None:
    assert dsl.exact("traffic") == TRAFFIC
    assert dsl.exact("gem_packs") == [
        *("ingest", "parse", "conversions", "highest", "enriched", "offers", "dear")
    ]
    assert dsl.exact("flights") == ["ingest", "parse", "area", "emergencies", "departures"]


def test_another_version_is_as_exact_beside_it(processors: Runs) -> None:
    (version,) = load_engine(PROCESSORS).spec.versions
    name = f"{PROCESSORS}-{version.replace('.', '-')}"
    assert Runs(processors.command, name, f"{PROCESSORS}@{version}").exact("traffic") == TRAFFIC


def test_transactions_and_rocksdb_are_as_exact(processors: Runs) -> None:
    file = processors.command.data / "transactions.toml"
    file.write_text(TRANSACTIONS)
    assert Runs(processors.command, "transactions", str(file)).exact("traffic") == TRAFFIC


def test_in_transactions_a_kill_repeats_nothing(processors: Runs) -> None:
    file = processors.command.data / "transactions.toml"
    file.write_text(TRANSACTIONS)
    lengths = ("--rate", "100", "--warm-up", "3", "--duration", "20", "--kill", "driver")
    found = Runs(processors.command, "transactions", str(file)).committed("traffic", *lengths)
    repeated = ("missing", "wrong", "unexpected", "duplicate")
    assert [cell["verdicts"][one] for cell in found.values() for one in repeated] == [0] * 20


@pytest.mark.parametrize("domain", ["traffic", "gem_packs"])
def test_killed_processors_go_on_from_their_changelogs(processors: Runs, domain: str) -> None:
    assert processors.killed(domain) == {"missing": 0, "wrong": 0, "unexpected": 0}


def test_the_killed_dsl_goes_on_from_its_changelogs(dsl: Runs) -> None:
    assert dsl.killed("traffic") == {"missing": 0, "wrong": 0, "unexpected": 0}


def test_a_value_that_is_no_record_becomes_a_dead_letter(processors: Runs) -> None:
    told, planted = processors.dead_letters()
    assert planted.total() > 5
    assert told == planted


def test_the_dsl_too_tells_a_value_that_is_no_record(dsl: Runs) -> None:
    told, planted = dsl.dead_letters()
    assert planted.total() > 5
    assert told == planted


RATE = 200
SHORT = {
    "rate_per_second = 8000": f"rate_per_second = {RATE}",
    'step_warm_up_s = "auto"': "step_warm_up_s = 3",
    "max_steps = 12": "max_steps = 2",
    "max_send_delay_p99_ms = 500": "max_send_delay_p99_ms = 10_000",
}


def test_one_and_two_threads_are_measured_on_as_many_partitions(processors: Runs) -> None:
    data, command = processors.command.data, processors.command
    short, path = changed_workload("scalability", data / "short.toml", SHORT), data / "series.json"
    lengths = ("--warm-up", "3", "--duration", "5", "--workers", "1,2")
    done = command("run", str(short), *lengths, "--report", str(path))
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    found = report["scalability"]
    assert [(one["workers"], one["partitions"]) for one in found["points"]] == [(1, 1), (2, 2)]
    if done.returncode:
        reasons = told_invalid(done.stdout)
        assert (done.returncode, of_the_machine(*reasons)) == (1, True), done.stdout
        pytest.skip("INVALID: " + " ".join(reasons))
    assert all(run["valid"] for one in found["points"] for run in one["runs"])
    for one in found["points"]:
        check_point(one)
    assert found["law"] is None
    asked = "SELECT partitions, settings['threads'] AS threads, wrong, unexpected FROM figures"
    rows = command("sql", f"{asked} WHERE pipeline LIKE 'kafka-streams-w%'", "--json")
    told = [json.loads(line) for line in rows.stdout.splitlines()]
    assert {(one["partitions"], one["threads"]) for one in told} >= {(1, "1"), (2, "2")}
    assert not any(one["wrong"] or one["unexpected"] for one in told)
    again = command("report", found["series"], "--markdown")
    assert "## kafka-streams by workers" in again.stdout
    assert "no law is fitted" in again.stdout
    page = command("report", found["series"], "--html", str(data / "series.html"))
    assert page.returncode == 0, page.stderr
    assert "Sustainable rate by workers" in (data / "series.html").read_text()
    refused = command("run", str(short), "--pipeline", "bytewax", "--workers", "1,2")
    assert refused.returncode == 2
    assert "bytewax has no setting for a number of workers" in refused.stderr


def check_point(point: dict[str, Any]) -> None:
    """Check a search of two steps: the second step is long and its rate is not above the first's,
    and the next search starts from the rate found here."""
    assert 0 < point["rate_per_second"]["value"] <= RATE
    assert point["rate_per_second"]["value"] == point["rate_per_second"]["low"]
    assert point["core_seconds_per_million_records"]["value"] > 0
    assert point["stages"]["tumbling"]["p50"]["value"] >= 0


def test_nothing_is_lost_when_the_network_is_cut_paused_and_slowed(processors: Runs) -> None:
    workload = processors.command.data / "network.toml"
    workload.write_text(
        NETWORK.lstrip() + patient_workload(processors.command.data).read_text(), encoding="utf-8"
    )
    lengths = ("--rate", "100", "--warm-up", "3", "--duration", "45")
    found = processors.faulty(workload, *lengths)
    assert [cell["verdicts"][one] for cell in found.values() for one in LOST] == [0] * 15
    assert [each["event"] for each in found["ingest"]["recovery"]] == [
        *("cut of the network for 3 s", "pause of the network for 3 s"),
        "slowing of the network by 300 ms for 3 s",
    ]
    for cell in found.values():
        timed = cell["latency_ms"]
        assert timed["processing_time"]["count"] == timed["latest"]["count"]
        assert timed["latest"]["max"] > 2_000
        assert timed["processing_time"]["min"] >= 0
