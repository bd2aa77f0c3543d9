"""The cost of a watch, compared with a Kafka client that only reads the same topics.

A load writes records of 100 bytes to a topic with four partitions, and 10 ms later one with the
same key to another. Then, alternately, each in its own process:
- ours: a watch as the watcher starts it, publishing to a bus on the same broker;
- exported: the same watch as `watch --export` runs it, scraped every five seconds;
- the peer: a consumer of confluent-kafka with the same settings, which counts messages.
A figure is the processor time of the process over a period, including the client's threads, after
the watch has read its initial data. The cases are the intended uses of a watch: 10,000 records/s
in and out, by key and by a JSON field, a path of five hops with 10,000/s in all of its topics, and
100,000/s by key with a sample.
Intervals are 95 % intervals over the rounds; those of a ratio are on the log scale.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import psutil

from schemas.watch import Watch
from services.definitions.watches import keep_watch, position_path
from services.runtime.settings import ROOT, ServiceSettings
from services.watcher import position
from tests.benchmarks._measured import Measured, averaged, ratio
from tests.benchmarks._watch_load import running_load
from tests.integration.kafka_broker import lasting, running_broker

ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "20"))
PARTITIONS = 4
NEAR_MS = 3_000  # a smaller lag counts as caught up
TIMEOUT_S = 240
EXPORTER = "services.watcher.exporting"
SCRAPE_S = 5.0


@dataclass(frozen=True)
class Case:
    """rate: records per second of each topic. format: of values. share: of the records counted.
    hops: of the path from the first topic to the last."""

    name: str
    rate: int
    format: str
    share: float
    remember_s: int
    hops: int = 1

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the path."""
        return tuple(f"{self.name}_{number}" for number in range(self.hops + 1))


CASES = (
    Case("keys_10k", 10_000, "bytes", 1.0, 120),
    Case("json_10k", 10_000, "json", 1.0, 120),
    Case("five_hops_10k", 10_000 // 6, "bytes", 1.0, 120, hops=5),
    Case("keys_100k_one_in_16", 100_000, "bytes", 1 / 16, 30),
)


@dataclass(frozen=True)
class Used:
    """Resource usage of a process while it was measured."""

    cores: float
    memory_mb: float


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Cores and megabytes of each case, and the ratio of the peer's cores to ours."""
    found = Measured()
    with running_broker(scratch, options=lasting()) as settings:
        for case in CASES:
            _measure_case(case, settings, scratch, say, found)
    return found


def _measure_case(
    case: Case,
    settings: ServiceSettings,
    scratch: Path,
    say: Callable[[str], None],
    found: Measured,
) -> None:
    ours, exported, peers = [], [], []
    with running_load(settings.bootstrap, case.topics, case.rate, case.format, PARTITIONS):
        filled_s = time.monotonic() + min(case.remember_s, 6 * SECONDS)
        while time.monotonic() < filled_s:
            time.sleep(0.5)  # the load writes the data that a new watch reads first
        for number in range(ROUNDS):
            data = scratch / f"{case.name}-{number}"
            ours.append(_ours(case, settings, data, "services.watcher.process"))
            exported.append(_ours(case, settings, data / "export", EXPORTER))
            peers.append(_peer(case, settings))
            say(
                f"{case.name}, round {number + 1}: {ours[-1].cores:.3f} of a core and "
                f"{ours[-1].memory_mb:.0f} MB; exported {exported[-1].cores:.3f} and "
                f"{exported[-1].memory_mb:.0f} MB; the client alone {peers[-1].cores:.3f}"
            )
    cores, alone = ([one.cores for one in side] for side in (ours, peers))
    found.figures.update(averaged(f"watch_{case.name}_cores", cores))
    found.figures.update(averaged(f"client_{case.name}_cores", alone))
    found.figures[f"watch_{case.name}_memory_mb"] = max(one.memory_mb for one in ours)
    found.figures.update(averaged(f"exporter_{case.name}_cores", [one.cores for one in exported]))
    found.figures[f"exporter_{case.name}_memory_mb"] = max(one.memory_mb for one in exported)
    found.ratios.update(ratio(f"client_to_watch_{case.name}", alone, cores))


def _ours(case: Case, settings: ServiceSettings, data: Path, module: str) -> Used:
    """A watch that has caught up, in the process that a module starts."""
    is_json = case.format == "json"
    hops = [
        {"name": f"hop_{number}", "inputs": [before], "outputs": [after]}
        for number, (before, after) in enumerate(pairwise(case.topics))
    ]
    shape = {"format": case.format, "identity": ["value.order.id" if is_json else "key"]}
    watch = Watch.model_validate(
        {
            "name": "bench",
            "kafka": {"bootstrap": settings.bootstrap},
            "inputs": [{"topic": case.topics[0], **shape}],
            "through": [{"topic": topic, **shape} for topic in case.topics[1:-1]],
            "outputs": [{"topic": case.topics[-1], **shape}],
            "hops": hops if case.hops > 1 else [],
            "relation": {
                "deadline_ms": 5_000,
                "give_up_ms": 20_000,
                "remember_ms": 1000 * case.remember_s,
            },
            "share": case.share,
        }
    )
    keep_watch(data, watch)
    variables = {
        "TIDEGAUGE_BASE_PORT": str(settings.base_port),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "TIDEGAUGE_DATA": str(data),
    }
    arguments, address = (watch.name,), ""
    if module == EXPORTER:
        port = settings.port("watcher")
        arguments = (str(data), watch.name, "127.0.0.1", str(port))
        address = f"http://127.0.0.1:{port}/metrics"
    with _process(module, arguments, variables) as process:
        _await_caught_up(position_path(data, watch.name))
        before = _exact(position_path(data, watch.name))
        used = _used(process, address)
    judged = _exact(position_path(data, watch.name)) - before
    assert judged >= 0.8 * case.rate * case.share * SECONDS, f"only {judged} outputs were judged"
    return used


def _peer(case: Case, settings: ServiceSettings) -> Used:
    """A consumer that reads the same topics from now on."""
    arguments = (settings.bootstrap, *case.topics)
    with _process("tests.benchmarks._watch_peer", arguments, {}, says=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reads\n"
        used = _used(process)
        read = int(process.stdout.readline())
    assert read >= 0.8 * case.rate * len(case.topics), f"the peer read {read} messages a second"
    return used


def _used(process: "subprocess.Popen[bytes]", address: str = "") -> Used:
    """Resource usage of a process over the next SECONDS. address: of its metrics, or empty."""
    seen = psutil.Process(process.pid)
    scraped_s = time.monotonic()
    began_s, before = time.monotonic(), sum(seen.cpu_times()[:2])
    memory = []
    while time.monotonic() < began_s + SECONDS:
        memory.append(seen.memory_info().rss)
        if address and time.monotonic() - scraped_s >= SCRAPE_S:
            scraped_s = time.monotonic()
            urlopen(address, timeout=TIMEOUT_S).read()
        time.sleep(0.25)  # the duration of the measurement
    assert process.poll() is None, "it has ended"
    seconds = time.monotonic() - began_s
    return Used((sum(seen.cpu_times()[:2]) - before) / seconds, max(memory) / 1e6)


def _await_caught_up(path: Path) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        saved = position.load(path)
        if saved is not None:
            saved_ms = 1000 * path.stat().st_mtime
            if saved[1]["before_ms"] > saved_ms - NEAR_MS:
                return
        assert time.monotonic() < end_s, "the watch does not catch up"
        time.sleep(0.1)  # interval between checks, within the deadline


def _exact(path: Path) -> int:
    """Number of exact outputs so far, from the last saved position."""
    saved = position.load(path)
    assert saved is not None
    return sum(one["verdicts"].get("exact", 0) for one in saved[1]["totals"].values())


@contextmanager
def _process(
    module: str, arguments: tuple[str, ...], variables: dict[str, str], says: bool = False
) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that ends at the end of its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if says else subprocess.DEVNULL,
    )
    try:
        yield process
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
        process.wait()
