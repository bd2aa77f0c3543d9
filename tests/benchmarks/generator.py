"""How fast the generator sends, compared with Kafka's own ProducerPerformance, alternately in one
run.

Both: one process, acks=1, lz4, four partitions (ours: two of each input topic), the same number of
bytes per record (key and value), the same broker on the same machine. Ours sends distinct keyed
Avro records, encoded while they are sent. ProducerPerformance runs with four settings (linger 5 and
50 ms, batches of 16 and 256 KiB), and the best of them counts, for three payloads:
- `distinct`: with --record-size, which fills every record with different random letters;
- `varied`: with --payload-file and the 570 observations of the sample as text, each padded with
  different letters; it sends a random one. They cost nothing to generate, but more than a single
  payload to compress;
- `repeated`: with --payload-file and one payload, so the same bytes are repeated. It costs nothing
  to generate and almost nothing to compress and to transport, so it is an upper bound for any load
  of real records.

TIDEGAUGE_BENCH_ROUNDS (3) is the number of repetitions. TIDEGAUGE_BENCH_RECORDS is the number of
records per run; below ten million the result includes the start of the JVM.
"""

import json
import os
import random
import re
import string
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from deploy.local.install import same
from deploy.local.jars import BENCH_FILE, STAMP, fetch
from deploy.local.java import find_java
from schemas import catalogue
from services.runtime.kafka import admin_client, ensure_topics
from services.runtime.settings import ROOT, ServiceSettings
from tests.benchmarks._measured import Measured, ratio
from tests.integration.kafka_broker import lasting, running_broker
from tests.traffic import input_topics

RECORDS = int(os.environ.get("TIDEGAUGE_BENCH_RECORDS", "10_000_000"))
ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "3"))
PARTITIONS = 4
LINGERS_MS = (5, 50)
PAYLOADS = ("distinct", "varied", "repeated")
PEERS = tuple((payload, kib) for payload in PAYLOADS for kib in (16, 256))
TIMEOUT_S = 600
PEER_TOPIC = catalogue.Topic("peer", ("traffic_flow",), PARTITIONS, 600, 1024**3)
BENCH_JARS = ROOT / ".jars" / "bench"


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Run both with every setting alternately; figures are records per second."""
    if not same(BENCH_FILE, BENCH_JARS / STAMP):
        say("fetching Kafka's tools")
        fetch(BENCH_JARS, BENCH_FILE)
    rates: dict[str, list[float]] = defaultdict(list)
    most: dict[str, float] = defaultdict(float)

    def note(name: str, rate: float) -> None:
        rates[name].append(rate)
        say(f"round {len(rates[name])}: {name}: {rate:,.0f} records/s")

    with running_broker(scratch, PARTITIONS // 2, lasting()) as settings:
        for linger_ms in LINGERS_MS * ROUNDS:
            renew_topics(settings)
            ours = run_ours(settings, linger_ms)
            note(f"generator_linger_{linger_ms}", ours["records_per_second"])
            for name in ("record_bytes", "memory_mb", "cpu_us_per_record"):
                most[f"generator_{name}"] = max(ours[name], most[f"generator_{name}"])
            for payload, batch_kib in PEERS:
                renew_topics(settings)
                peer = Peer(payload, linger_ms, batch_kib, round(ours["record_bytes"]))
                note(peer.name, run_peer(settings, scratch, peer))
    medians = {f"{name}_records_per_second": median(of) for name, of in rates.items()}
    best = {kind: best_of(rates, kind) for kind in ("generator", *PAYLOADS)}
    return Measured(
        medians | most,
        ratio("generator_to_peer", best["generator"], best["distinct"])
        | ratio("generator_to_peer_with_payloads_made_before", best["generator"], best["varied"])
        | ratio("generator_to_peer_repeating_one_payload", best["generator"], best["repeated"]),
    )


def best_of(rates: Mapping[str, Sequence[float]], kind: str) -> list[float]:
    """The highest rate of each round over the settings of a kind."""
    return [max(of) for of in zip(*(r for name, r in rates.items() if kind in name), strict=True)]


@dataclass(frozen=True)
class Peer:
    """Settings of ProducerPerformance. payload: one of PAYLOADS."""

    payload: str
    linger_ms: int
    batch_kib: int
    record_bytes: int

    @property
    def name(self) -> str:
        """Name of its figure, without the unit."""
        return f"peer_{self.payload}_linger_{self.linger_ms}_batch_{self.batch_kib}kib"


def renew_topics(settings: ServiceSettings) -> None:
    """Recreate the topics empty, so that data of the last run does not affect the next one."""
    admin = admin_client(settings, "bench")
    topics = (*input_topics(PARTITIONS // 2), PEER_TOPIC)
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
    """Run one generator process; see _generator_load.py."""
    environment = os.environ | {"TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap}
    command = [sys.executable, "-m", "tests.benchmarks._generator_load"]
    command += [str(RECORDS), str(linger_ms)]
    found: dict[str, float] = json.loads(run(command, environment))
    return found


def payloads(peer: Peer) -> list[str]:
    """Lines of the payload file, each of a record's size without its line end."""
    sample = ROOT / "domains" / "traffic" / "data" / "ndw_traffic_2017-03-15.csv"
    observations = sample.read_text().splitlines()[1:] if peer.payload == "varied" else [""]
    chance = random.Random(1)
    filled = (
        observation + "".join(chance.choices(string.ascii_uppercase, k=peer.record_bytes))
        for observation in observations
    )
    return [line[: peer.record_bytes] + "\n" for line in filled]


def run_peer(settings: ServiceSettings, scratch: Path, peer: Peer) -> float:
    """Run ProducerPerformance; returns its records per second."""
    source = ["--record-size", str(peer.record_bytes)]
    if peer.payload != "distinct":
        path = scratch / "payload.txt"
        path.write_text("".join(payloads(peer)))
        source = ["--payload-file", str(path)]
    classes = f"{ROOT}/.jars/broker/*:{BENCH_JARS}/tools/*"
    command = [str(find_java(ROOT / ".jars").executable), "-Xmx512m", "-cp", classes]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", PEER_TOPIC.name]
    command += ["--bootstrap-server", settings.bootstrap, "--num-records", str(RECORDS)]
    command += ["--throughput", "-1", *source, "--command-property"]
    command += ["acks=1", "compression.type=lz4", f"linger.ms={peer.linger_ms}"]
    command += [f"batch.size={peer.batch_kib * 1024}"]
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
