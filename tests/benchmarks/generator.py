"""How fast the generator sends, against Kafka's own ProducerPerformance, alternately in one run.

Both: one process, acks=1, lz4, four partitions (ours are two of each input topic), the same bytes a
record (key and value), the same broker beside them. Ours sends distinct keyed Avro records, encoded
while they are sent. ProducerPerformance sends one payload of random letters over and over, without
a key, and is asked in four ways (linger 5 and 50 ms, batches of 16 and 256 KiB); its best counts.
A random payload per record, which `--record-size` makes, would be slower.

TIDEGAUGE_BENCH_RECORDS is the number of records of each run; below ten million the start of the JVM
is a part of what is measured.
"""

import json
import os
import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

from confluent_kafka.admin import AdminClient

from deploy.local.install import same
from deploy.local.jars import fetch
from deploy.local.java import find_java
from schemas import catalogue
from services.runtime.kafka import admin_client
from services.runtime.settings import ROOT, ServiceSettings
from services.runtime.topics import ensure_topics
from tests.benchmarks._measured import Measured
from tests.integration.kafka_broker import running_broker

RECORDS = int(os.environ.get("TIDEGAUGE_BENCH_RECORDS", "10_000_000"))
PARTITIONS = 4
LINGERS_MS = (5, 50)
BATCHES_BYTES = (16_384, 262_144)
TIMEOUT_S = 600
PEER_TOPIC = catalogue.Topic("peer", ("traffic_flow",), PARTITIONS, 600, 1024**3)
BENCH_JARS = ROOT / ".jars" / "bench"


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Run both with every setting in turn; figures are records per second."""
    ivy_file = ROOT / "deploy" / "local" / "bench.xml"
    if not same(ivy_file, BENCH_JARS / "installed.xml"):
        say("fetching Kafka's tools")
        fetch(BENCH_JARS, ivy_file)
    figures: dict[str, float] = {}
    with running_broker(scratch, input_partitions=PARTITIONS // 2) as settings:
        admin = admin_client(settings, "bench")
        for linger_ms in LINGERS_MS:
            renew_topics(admin)
            ours = run_ours(settings, linger_ms)
            say(f"generator, linger {linger_ms} ms: {ours['records_per_second']:,.0f} records/s")
            figures[f"generator_linger_{linger_ms}_records_per_second"] = ours["records_per_second"]
            for name in ("record_bytes", "memory_mb", "cpu_us_per_record"):
                figures[f"generator_{name}"] = max(ours[name], figures.get(f"generator_{name}", 0))
            for batch_bytes in BATCHES_BYTES:
                renew_topics(admin)
                rate = run_peer(settings, scratch, linger_ms, batch_bytes, ours["record_bytes"])
                kib = batch_bytes // 1024
                say(f"ProducerPerformance, linger {linger_ms} ms, {kib} KiB: {rate:,.0f} records/s")
                figures[f"peer_linger_{linger_ms}_batch_{kib}kib_records_per_second"] = rate
    return Measured(figures, {"generator_to_producer_performance": ratio(figures)})


def ratio(figures: dict[str, float]) -> float:
    """Our best against the peer's best."""
    ours = [figures[f"generator_linger_{linger}_records_per_second"] for linger in LINGERS_MS]
    theirs = [
        figures[f"peer_linger_{linger}_batch_{batch // 1024}kib_records_per_second"]
        for linger, batch in product(LINGERS_MS, BATCHES_BYTES)
    ]
    return max(ours) / max(theirs)


def renew_topics(admin: AdminClient) -> None:
    """Empty topics: what the last run left on disk does not weigh on the next one."""
    topics = (*catalogue.input_topics(PARTITIONS // 2), PEER_TOPIC)
    there = admin.list_topics(timeout=15).topics
    gone = [topic.name for topic in topics if topic.name in there]
    for future in admin.delete_topics(gone, operation_timeout=15).values() if gone else ():
        future.result(30)
    deadline_s = time.monotonic() + TIMEOUT_S
    while set(gone) & set(admin.list_topics(timeout=15).topics):
        assert time.monotonic() < deadline_s, "the topics do not go away"
        time.sleep(0.1)
    ensure_topics(admin, topics)


def run_ours(settings: ServiceSettings, linger_ms: int) -> dict[str, float]:
    """One process of the generator; see _generator_load.py."""
    environment = os.environ | {"TIDEGAUGE_BASE_PORT": str(settings.base_port)}
    command = [sys.executable, "-m", "tests.benchmarks._generator_load"]
    command += [str(RECORDS), str(linger_ms)]
    found: dict[str, float] = json.loads(run(command, environment))
    return found


def run_peer(
    settings: ServiceSettings, scratch: Path, linger_ms: int, batch_bytes: int, record_bytes: float
) -> float:
    """ProducerPerformance; returns its records per second."""
    payload = scratch / "payload.txt"
    letters = random.Random(1).choices(string.ascii_letters, k=round(record_bytes))
    payload.write_text("".join(letters) + "\n")
    classes = f"{ROOT}/.jars/broker/*:{BENCH_JARS}/tools/*"
    command = [str(find_java(ROOT / ".jars").executable), "-Xmx512m", "-cp", classes]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", PEER_TOPIC.name]
    command += ["--bootstrap-server", settings.bootstrap, "--num-records", str(RECORDS)]
    command += ["--throughput", "-1", "--payload-file", str(payload), "--command-property"]
    command += ["acks=1", "compression.type=lz4", f"linger.ms={linger_ms}"]
    command += [f"batch.size={batch_bytes}"]
    last = run(command, dict(os.environ)).strip().splitlines()[-1]
    found = re.search(r"([\d.]+) records/sec", last)
    assert found is not None, last
    return float(found[1])


def run(command: list[str], environment: dict[str, str]) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout
