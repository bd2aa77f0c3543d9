"""The rate at which one pipeline processes a backlog; it is suspended while the backlog is
published.

The pipeline is started on a smaller backlog, processes it and waits for more: `start_s` is from the
start of its program to the LogAppendTime of its first output. Its processes are then suspended
(SIGSTOP), the backlog is published, and they are resumed (SIGCONT). The rate is the backlog divided
by the time from then to the LogAppendTime of its last output. It includes neither a first start nor
competition with the publisher.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from confluent_kafka import TopicPartition

from analysis.room import HeapSample, heap
from schemas import catalogue
from schemas.model import Stage
from schemas.pipeline import Pipeline
from services.collector.jvm import JvmCounters, JvmSample
from services.definitions.domains import load_domain
from services.definitions.engines import engine_for, installed
from services.runner.processes import (
    PipelineProcess,
    last_meaningful_line,
    read_tail,
    start_process,
    stop_processes,
)
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets, ensure_topics
from services.runtime.settings import ROOT, ServiceSettings
from tests.engine_plans import write_plan
from tests.traffic import INPUTS, output_topics

READY_S, DONE_S, SETTLED_S, SETTLED_SHORT_S = 120.0, 300.0, 3.0, 20.0
SLOWEST_PER_S = 2_000  # outputs; time for a backlog beside DONE_S
MOST = 0.9
APART_MS = 200_000  # of event time between the two backlogs
POLL_S = 0.1
SIZES = ("used", "max")


@dataclass(frozen=True)
class CaughtUp:
    """The result of one pipeline for a backlog. outputs: actual and expected number. start_s: from
    the start of its program to its first output, None if it was not measured. heap: what its JVM
    needed (analysis/room.py), None without a JVM."""

    records_per_second: float
    cpu_seconds_per_million: float
    outputs: int
    expected: int
    start_s: float | None = None
    heap: dict[str, Any] | None = None


def catch_up(
    settings: ServiceSettings, scratch: Path, pipeline: Pipeline, stage: Stage, records: int
) -> CaughtUp:
    """Measure one stage of a pipeline. Raises AssertionError if there is no result."""
    topic = catalogue.output_topic(pipeline.name, stage)
    run_id = f"bench-{secrets.token_hex(4)}"
    renew(settings, pipeline.name, stage)
    offsets = forget_inputs(settings)
    start_ms = int(time.time()) * 1000
    with closing(Outputs(settings, topic)) as watch:
        few = publish(settings, run_id, max(records // 10, 1000), start_ms)[stage]
        began_ms = time.time() * 1000
        with running_pipeline(settings, scratch, pipeline, stage, run_id, offsets) as query:
            watch.until_settled(few, lambda: check(query))
            start_s = (watch.first_appended_ms() - began_ms) / 1000
            caught = measured(settings, query.process.pid, watch, stage, run_id, records, start_ms)
    return replace(caught, start_s=start_s)


def copy(settings: ServiceSettings, records: int) -> CaughtUp:
    """Measure the plain copy."""
    renew(settings, "copy", "ingest")
    forget_inputs(settings)
    command = [sys.executable, "-m", "tests.benchmarks._copy"]
    with started(command, settings, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        start_ms = int(time.time()) * 1000
        with closing(Outputs(settings, catalogue.output_topic("copy", "ingest"))) as watch:
            few = publish(settings, "bench-copy", max(records // 10, 1000), start_ms)["ingest"]
            watch.until_settled(few)
            return measured(settings, process.pid, watch, "ingest", "bench-copy", records, start_ms)


@contextmanager
def running_pipeline(
    settings: ServiceSettings,
    scratch: Path,
    pipeline: Pipeline,
    stage: Stage,
    run_id: str,
    offsets: dict[str, tuple[int, ...]],
) -> Iterator[PipelineProcess]:
    """The program of a pipeline with one stage, started as the runner does."""
    domain = load_domain("traffic").spec
    plan = write_plan(settings, scratch, run_id, pipeline, domain, (stage,), offsets)
    place = installed(engine_for(pipeline), settings)
    with patch.dict(os.environ, environment(settings)):
        query = start_process(pipeline, place, plan, scratch / f"{run_id}.log")
    try:
        yield query
    finally:
        stop_processes([query], timeout_s=5)


def check(query: PipelineProcess) -> None:
    """Read the program's output so that it does not block. Raises AssertionError once it has
    ended."""
    said = query.said()
    failed = [line for line in said if line.event == "failed"]
    assert not failed, failed[0]
    assert query.code is None, last_meaningful_line(read_tail(query.log))


def measured(
    settings: ServiceSettings,
    pid: int,
    watch: "Outputs",
    stage: str,
    run_id: str,
    records: int,
    start_ms: int,
) -> CaughtUp:
    """Suspend the pipeline, publish the backlog, resume it, and wait for its last output."""
    os.killpg(pid, signal.SIGSTOP)
    expected = publish(settings, run_id, records, start_ms + APART_MS)[stage]
    before, cpu_before_s = watch.count, cpu_seconds(pid)
    used_s = 0.0
    jvms = Jvms(pid)

    def note() -> None:
        nonlocal used_s
        used_s = cpu_seconds(pid) - cpu_before_s
        jvms.look(used_s)

    began_ms = time.time() * 1000
    os.killpg(pid, signal.SIGCONT)
    watch.until_settled(expected, on_output=note)
    took_s = (watch.last_appended_ms() - began_ms) / 1000
    return CaughtUp(
        records / took_s,
        used_s / records * 1e6,
        watch.count - before,
        expected,
        heap=heap(jvms.samples),
    )


class Jvms:
    """Samples of the JVMs among a process and its descendants. Processor time counts from now."""

    def __init__(self, pid: int) -> None:
        process = psutil.Process(pid)
        found = (JvmCounters(each.pid) for each in (process, *process.children(recursive=True)))
        self._jvms = [one for one in found if one.is_known]
        self.samples: list[HeapSample] = []
        self._before = (time.monotonic(), 0.0, sum(one.gc_seconds for one in self._read()))

    def look(self, cpu_s: float) -> None:
        """Take a sample. cpu_s: processor time so far."""
        read = self._read()
        if not read:
            return
        at_s, gc_s = time.monotonic(), sum(one.gc_seconds for one in read)
        before_at_s, before_cpu_s, before_gc_s = self._before
        self._before = (at_s, cpu_s, gc_s)
        used, most = ([getattr(one, f"heap_{name}_bytes") for one in read] for name in SIZES)
        self.samples.append(
            HeapSample(
                at_s - before_at_s,
                cpu_s - before_cpu_s,
                gc_s - before_gc_s,
                sum(one or 0 for one in used) or None,
                sum(one or 0 for one in most) or None,
            )
        )

    def _read(self) -> list[JvmSample]:
        return [sample for one in self._jvms if (sample := one.sample()) is not None]


class Outputs:
    """The number of records in an output topic, and the times of the first and the last one."""

    def __init__(self, settings: ServiceSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer = assigned_consumer(settings, "bench-outputs", **{"fetch.min.bytes": 1})
        self._first = end_offsets(self._consumer, topic)
        self.count = self._look()

    def until_settled(
        self,
        expected: int,
        each_time: Callable[[], None] = lambda: None,
        on_output: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until as many more outputs have arrived and no more follow. Built-in windows leave
        the last ones open, so MOST of them suffice if none has arrived for a while."""
        before = changed = self.count
        deadline_s = time.monotonic() + DONE_S + expected / SLOWEST_PER_S
        changed_s: float | None = None
        while time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            each_time()
            self.count = self._look()
            if self.count != changed:
                on_output()
                changed, changed_s = self.count, time.monotonic()
            if changed_s is None:
                continue
            came, silent_s = self.count - before, time.monotonic() - changed_s
            if came >= expected and silent_s > SETTLED_S:
                return
            if came >= MOST * expected and silent_s > SETTLED_SHORT_S:
                return
        raise AssertionError(f"{self._topic}: {self.count - before} of {expected} in time")

    def first_appended_ms(self) -> int:
        """LogAppendTime of the first record since this object was created."""
        return min(self._times_ms(self._first))

    def last_appended_ms(self) -> int:
        """LogAppendTime of the newest record."""
        return max(self._times_ms([end - 1 for end in end_offsets(self._consumer, self._topic)]))

    def _times_ms(self, offsets: Sequence[int]) -> list[int]:
        """Times of the records at the given offsets, by partition, as far as they exist."""
        ends = end_offsets(self._consumer, self._topic)
        places = {n: at for n, at in enumerate(offsets) if 0 <= at < ends[n]}
        found: dict[int, int] = {}
        self._consumer.assign([TopicPartition(self._topic, *place) for place in places.items()])
        deadline_s = time.monotonic() + READY_S
        while len(found) < len(places) and time.monotonic() < deadline_s:
            for message in self._consumer.consume(100, 0.5):
                if not message.error():
                    found.setdefault(message.partition(), message.timestamp()[1])
        return list(found.values())

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _look(self) -> int:
        return sum(end_offsets(self._consumer, self._topic))


def forget_inputs(settings: ServiceSettings) -> dict[str, tuple[int, ...]]:
    """Delete the inputs of earlier measurements; returns the end offsets of the topics."""
    consumer = assigned_consumer(settings, "bench")
    offsets = {topic: tuple(end_offsets(consumer, topic)) for topic in INPUTS}
    consumer.close()
    places = [
        TopicPartition(topic, n, end)
        for topic, ends in offsets.items()
        for n, end in enumerate(ends)
    ]
    admin = admin_client(settings, "bench")  # keep a reference until the results have arrived
    for done in admin.delete_records(places).values():
        done.result(READY_S)
    return offsets


def publish(settings: ServiceSettings, run_id: str, records: int, start_ms: int) -> dict[str, int]:
    """Publish a backlog; returns the expected outputs (see _backlog.py)."""
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
    """Make sure that the output topic exists."""
    topics = output_topics(pipeline, (stage,), settings.input_partitions)
    ensure_topics(admin_client(settings, "bench"), topics)


@contextmanager
def started(
    command: list[str], settings: ServiceSettings, output: object
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in its own process group; the whole group is ended on exit."""
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
    """The environment variables that point a process to the benchmark's broker."""
    return os.environ | {
        "TIDEGAUGE_BASE_PORT": str(settings.base_port),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "TIDEGAUGE_DATA": str(settings.data),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its running descendants."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)
