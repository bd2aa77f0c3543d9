"""How fast one query works off a backlog: it is held still while the backlog is published.

The query runs already, has worked off a smaller backlog and waits for more. Its processes are
stopped (SIGSTOP), the backlog is published, and they go on (SIGCONT). The rate is the backlog over
the time from then to the LogAppendTime of its last output, so it includes nothing of a first start
and no competition with whoever publishes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import TopicPartition

from schemas import catalogue
from schemas.model import Stage
from schemas.pipeline import Pipeline
from services.runtime.domains import load_domain
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets
from services.runtime.settings import ROOT, ServiceSettings
from services.runtime.topics import ensure_topics
from tests.engine_plans import write_plan
from tests.traffic import INPUTS, output_topics

READY_S, DONE_S, SETTLED_S, SETTLED_SHORT_S = 120.0, 300.0, 3.0, 20.0
APART_MS = 200_000  # of event time, between the two backlogs
POLL_S = 0.1


@dataclass(frozen=True)
class CaughtUp:
    """What one query did with a backlog. outputs: of how many expected."""

    records_per_second: float
    cpu_seconds_per_million: float
    outputs: int
    expected: int


def catch_up(
    settings: ServiceSettings, scratch: Path, pipeline: Pipeline, stage: Stage, records: int
) -> CaughtUp:
    """Measure one stage of a pipeline."""
    topic = catalogue.output_topic(pipeline.name, stage)
    run_id = f"bench-{pipeline.name}-{stage}"
    with running_query(settings, scratch, pipeline, stage, run_id) as process:
        return measured(settings, process, topic, stage, run_id, records)


def copy(settings: ServiceSettings, records: int) -> CaughtUp:
    """Measure the plain copy."""
    topic = catalogue.output_topic("copy", "ingest")
    renew(settings, "copy", "ingest")
    command = [sys.executable, "-m", "tests.benchmarks._copy"]
    with started(command, settings, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return measured(settings, process, topic, "ingest", "bench-copy", records)


@contextmanager
def running_query(
    settings: ServiceSettings, scratch: Path, pipeline: Pipeline, stage: Stage, run_id: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """The driver of one stage of a pipeline, ready."""
    renew(settings, pipeline.name, stage)
    consumer = assigned_consumer(settings, "bench")
    offsets = {topic: end_offsets(consumer, topic) for topic in INPUTS}
    consumer.close()
    domain = load_domain("traffic").spec
    plan = write_plan(settings, scratch, run_id, pipeline, domain, (stage,), offsets)
    command = [sys.executable, "-m", "services.spark_pipeline.driver", str(plan)]
    log = scratch / f"{run_id}.log"
    with log.open("wb") as output, started(command, settings, output) as process:
        deadline_s = time.monotonic() + READY_S
        while '"event": "ready"' not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-1000:]
            assert time.monotonic() < deadline_s, "the query is not ready"
            time.sleep(POLL_S)
        yield process


def measured(
    settings: ServiceSettings,
    process: "subprocess.Popen[bytes]",
    topic: str,
    stage: str,
    run_id: str,
    records: int,
) -> CaughtUp:
    """Warm the query up, hold it, publish the backlog, let it go, and wait for its last output."""
    watch = Outputs(settings, topic)
    start_ms = int(time.time()) * 1000
    watch.until_settled(publish(settings, run_id, max(records // 10, 1000), start_ms)[stage])
    os.killpg(process.pid, signal.SIGSTOP)
    expected = publish(settings, run_id, records, start_ms + APART_MS)[stage]
    before, cpu_before_s = watch.count, cpu_seconds(process.pid)
    began_ms = time.time() * 1000
    os.killpg(process.pid, signal.SIGCONT)
    watch.until_settled(expected)
    took_s = (watch.last_appended_ms() - began_ms) / 1000
    outputs = watch.count - before
    used_s = cpu_seconds(process.pid) - cpu_before_s
    return CaughtUp(records / took_s, used_s / records * 1e6, outputs, expected)


class Outputs:
    """The number of records in an output topic, and the time of the last one."""

    def __init__(self, settings: ServiceSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer = assigned_consumer(settings, "bench-outputs", **{"fetch.min.bytes": 1})
        self.count = self._look()

    def until_settled(self, expected: int) -> None:
        """Wait until as many outputs more are there and no more come; built-in windows leave the
        last ones open, so fewer will do when none has come for long."""
        before = changed = self.count
        deadline_s = time.monotonic() + DONE_S
        changed_s = time.monotonic()
        while time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            self.count = self._look()
            if self.count != changed:
                changed, changed_s = self.count, time.monotonic()
            enough = self.count - before >= expected
            if time.monotonic() - changed_s > (SETTLED_S if enough else SETTLED_SHORT_S):
                assert self.count > before, f"{self._topic}: nothing came"
                return
        raise AssertionError(f"{self._topic}: {self.count - before} of {expected} in time")

    def last_appended_ms(self) -> int:
        """LogAppendTime of the newest record."""
        ends = end_offsets(self._consumer, self._topic)
        self._consumer.assign(
            [TopicPartition(self._topic, n, end - 1) for n, end in enumerate(ends) if end]
        )
        newest: list[int] = []
        deadline_s = time.monotonic() + READY_S
        while len(newest) < sum(end > 0 for end in ends) and time.monotonic() < deadline_s:
            found = self._consumer.consume(100, 0.5)
            newest += [message.timestamp()[1] for message in found if not message.error()]
        return max(newest)

    def _look(self) -> int:
        return sum(end_offsets(self._consumer, self._topic))


def publish(settings: ServiceSettings, run_id: str, records: int, start_ms: int) -> dict[str, int]:
    """Publish a backlog; returns what it implies (see _backlog.py)."""
    command = [sys.executable, "-m", "tests.benchmarks._backlog"]
    done = subprocess.run(
        [*command, run_id, str(records), str(start_ms)],
        cwd=ROOT,
        env=environment(settings),
        stdout=subprocess.PIPE,
        check=True,
    )
    implied: dict[str, int] = json.loads(done.stdout)
    return implied


def renew(settings: ServiceSettings, pipeline: str, stage: Stage) -> None:
    """The output topic, there."""
    topics = output_topics(pipeline, (stage,), settings.input_partitions)
    ensure_topics(admin_client(settings, "bench"), topics)


@contextmanager
def started(
    command: list[str], settings: ServiceSettings, output: object
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own, ended with all of the group."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(settings),
        stdin=subprocess.PIPE,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment(settings: ServiceSettings) -> dict[str, str]:
    """The variables that lead a process to the broker of the benchmark."""
    return os.environ | {
        "TIDEGAUGE_BASE_PORT": str(settings.base_port),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "TIDEGAUGE_DATA": str(settings.data),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all it has started and that still runs."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)
