"""The default suite for two hours with three concurrent watches: every kind of its rotation has
runs, the watches count every record of their topics once, and no part's memory grows.

TIDEGAUGE_SOAK_SECONDS sets another duration. Below an hour only the watches are checked: not every
kind gets a turn, and the memory of a part still grows to its normal size.
"""

import json
import math
import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from deploy.local.engines import install_engines
from services.definitions.engines import load_engine
from services.definitions.workloads import load_suite
from services.runtime.kafka import end_offsets, logged
from services.runtime.settings import ServiceSettings
from tests.benchmarks._watch_load import running_load
from tests.end_to_end.command import CommandLine
from tests.end_to_end.documented import of_the_machine
from tests.integration.kafka_broker import free_base_port, running_broker

SECONDS = int(os.environ.get("TIDEGAUGE_SOAK_SECONDS", "7200"))
pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 1200)]

SUITE = "default"
ENGINE = "kafka-streams"  # one of those that the suite measures if installed
PARTITIONS = 2
MOST_GROWTH = 0.05
TELLING_S = 3600
GIVE_UP_S = 10
SETTLED_S = GIVE_UP_S + 20
WATCH = """
name = "{name}"
begin = "earliest"
share = {share}

[kafka]
bootstrap = "{kafka}"

[[inputs]]
topic = "{name}_in"
format = "{format}"
identity = ["{identity}"]

[[outputs]]
topic = "{name}_out"
format = "{format}"
identity = ["{identity}"]

[relation]
deadline_ms = 5_000
give_up_ms = {give_up_ms}
"""
COUNTED = """
    SELECT sum(exact) AS exact, sum(wrong + missing + late + duplicate + unexpected) AS others
    FROM tidegauge.verdict_totals WHERE startsWith(run_id, 'watch-{name}-')
"""
TURNS = """
    SELECT DISTINCT JSONExtractString(detail, 'label') AS label FROM tidegauge.results_lifecycle
    WHERE event = 'suite' AND run_id IN (SELECT run_id FROM tidegauge.runs WHERE valid)
"""
REASONS = """
    SELECT run_id, invalid_reasons FROM tidegauge.runs
    WHERE concluded AND NOT valid AND run_id IN (
        SELECT run_id FROM tidegauge.results_lifecycle WHERE event = 'suite'
    )
"""
SAMPLED_S = 10


@dataclass(frozen=True)
class Load:
    """Records for a watch: rate per second, format, and the share of them that is counted."""

    name: str
    rate: int
    format: str
    identity: str
    share: float = 1.0


LOADS = (
    Load("keys", 400, "bytes", "key"),
    Load("orders", 200, "json", "value.order.id"),
    Load("sampled", 1_600, "bytes", "key", 1 / 16),
)


def test_two_hours_of_the_default_suite_beside_three_watches(tmp_path: Path) -> None:
    install_engines([load_engine(ENGINE)], ServiceSettings(), print)
    (tmp_path / "kafka").mkdir()
    tidegauge = CommandLine(tmp_path / "stack", free_base_port())
    with running_broker(tmp_path / "kafka") as kafka:
        try:
            with ExitStack() as loads:
                for load in LOADS:
                    topics = (f"{load.name}_in", f"{load.name}_out")
                    load_of = (kafka.bootstrap, topics, load.rate, load.format, PARTITIONS)
                    loads.enter_context(running_load(*load_of))
                done(tidegauge, "up", SUITE, "--detach")
                for load in LOADS:
                    path = tmp_path / f"{load.name}.toml"
                    fields = vars(load) | {"kafka": kafka.bootstrap}
                    path.write_text(WATCH.format(**fields, give_up_ms=1000 * GIVE_UP_S))
                    done(tidegauge, "watch", str(path), "--detach")
                memory = watched_memory(tidegauge)
            time.sleep(SETTLED_S)  # until the last records are judged
            found = {load: counted(tidegauge, load) for load in LOADS}
            written = {load: records(kafka.bootstrap, f"{load.name}_out") for load in LOADS}
            turns = asked(tidegauge, TURNS)
            invalid = asked(tidegauge, REASONS)
            status = json.loads(done(tidegauge, "status", "--json"))
        finally:
            tidegauge("down")
    grown = {}
    if SECONDS >= TELLING_S:
        grown = {name: growth(samples) for name, samples in memory.items()}
    levels = {name: levels_mb(samples) for name, samples in memory.items()}
    told = {"grown": grown, "levels_mb": levels, "turns": turns, "invalid": invalid}
    told["status"] = status
    print(json.dumps(told, indent=2))
    for load, (exact, others) in found.items():
        assert others == 0, load
        if load.share == 1:
            assert exact == written[load] > 0.9 * load.rate * SECONDS
        else:
            assert exact == pytest.approx(
                load.share * written[load], abs=by_chance(load, written[load])
            )
    assert not [one for one in status["services"] if one["restarts"]]
    assert [one for one in invalid if not of_the_machine(" ".join(one["invalid_reasons"]))] == []
    if SECONDS < TELLING_S:
        return
    assert {"kafka", "store", "evaluator", "watcher"} <= set(grown)
    assert {name: share for name, share in grown.items() if share > MOST_GROWTH} == {}
    suite = load_suite(SUITE)
    labels = {one["label"] for one in turns}
    assert {step.kind for step in suite.steps if step.label in labels} == set(suite.rotation)


def watched_memory(tidegauge: CommandLine) -> dict[str, list[tuple[int, int]]]:
    """Seconds since the begin and own memory in bytes of each part, sampled for SECONDS. The stack
    must run all the time."""
    found: dict[str, list[tuple[int, int]]] = {}
    began_s, services, look = time.monotonic(), {}, 0
    while (at_s := int(time.monotonic() - began_s)) < SECONDS:
        if at_s >= look:
            status = json.loads(done(tidegauge, "status", "--json"))
            assert status["running"]
            services, look = {one["name"]: one["pid"] for one in status["services"]}, at_s + 60
        for name, pid in services.items():
            with suppress(psutil.NoSuchProcess):
                found.setdefault(name, []).append((at_s, own_bytes(name, psutil.Process(pid))))
        time.sleep(SAMPLED_S)  # the duration itself is under test
    return found


def own_bytes(name: str, part: psutil.Process) -> int:
    """Memory of a part without pages of files: the kernel shares these, and drops them when memory
    is short. A watch is a child of its part; the children of the runner are pipelines."""
    children = part.children() if name == "watcher" else []
    return sum(one.memory_info().rss - one.memory_info().shared for one in (part, *children))


def growth(samples: list[tuple[int, int]]) -> float:
    """By which share the memory of a part grew after the first quarter."""
    first = level(samples, SECONDS / 4, 3 * SECONDS / 8)
    return level(samples, 7 * SECONDS / 8, SECONDS) / first - 1


def level(samples: list[tuple[int, int]], from_s: float, to_s: float) -> float:
    """The minimum except for one sample in ten: between runs, so that memory used by a run does not
    count."""
    values = sorted(size for at_s, size in samples if from_s <= at_s <= to_s)
    return values[len(values) // 10] if values else math.nan


def levels_mb(samples: list[tuple[int, int]]) -> list[float]:
    """The level of each eighth, megabytes."""
    eighth = SECONDS / 8
    edges = (eighth * number for number in range(8))
    return [round(level(samples, edge, edge + eighth) / 1e6, 1) for edge in edges]


def by_chance(load: Load, count: int) -> float:
    """Maximum deviation of the number of sampled identities: six standard deviations, because each
    is selected by its hash."""
    return 6 * math.sqrt(count * load.share * (1 - load.share))


def done(tidegauge: CommandLine, *arguments: str) -> str:
    """Output of a command, which must succeed."""
    found = tidegauge(*arguments)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def asked(tidegauge: CommandLine, query: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    lines = done(tidegauge, "sql", query, "--format", "json").splitlines()
    return [json.loads(line) for line in lines]


def counted(tidegauge: CommandLine, load: Load) -> tuple[int, int]:
    """Exact outputs of a watch in all its runs, and all other verdicts."""
    (row,) = asked(tidegauge, COUNTED.format(name=load.name))
    return int(row["exact"]), int(row["others"])


def records(bootstrap: str, topic: str) -> int:
    """Number of records in a topic."""
    consumer = Consumer(logged("tests") | {"bootstrap.servers": bootstrap, "group.id": "tests"})
    try:
        return sum(end_offsets(consumer, topic))
    finally:
        consumer.close()
