"""Runs a service as a separate process, and reads the bus for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Message, TopicPartition

from schemas import catalogue, protocol
from schemas.codec import decode_json
from schemas.commands import Stop
from services.runtime.events import open_events, read_commands, unfinished
from services.runtime.kafka import (
    assigned_consumer,
    end_offsets,
    idempotent_producer,
    partition_ids,
)
from services.runtime.process import now_ms
from services.runtime.settings import ROOT, ServiceSettings
from tests.traffic import FLOW, INPUTS, RELEASED

DEADLINE_S = 400  # a busy machine needs several times as long as an idle one


class Reader:
    """Reads a topic from its beginning and stores all records."""

    def __init__(self, settings: ServiceSettings, topic: str) -> None:
        self.messages: list[Message] = []
        self._decoded: list[dict[str, Any]] = []
        self._topic = topic
        self._consumer = assigned_consumer(settings, "tests-reader", **{"fetch.min.bytes": 1})
        partitions = partition_ids(self._consumer, topic)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def read(self) -> None:
        """Read new records, waiting briefly for them."""
        self.messages += [m for m in self._consumer.consume(10_000, 0.2) if not m.error()]

    def records(self, run_id: str) -> list[dict[str, Any]]:
        """Decoded records of a run, in the order read. Runs with different input formats share the
        topics."""
        new = self.messages[len(self._decoded) :]
        self._decoded += map(_decoded, new)  # once each: a shared topic may have many
        return [record for record in self._decoded if record["run_id"] == run_id]

    def until(
        self,
        run_id: str,
        enough: Callable[[list[dict[str, Any]]], Any],
        deadline_s: float = DEADLINE_S,
    ) -> list[dict[str, Any]]:
        """Read until `enough` returns true for the records of a run."""
        end = time.monotonic() + deadline_s
        while not enough(self.records(run_id)):
            assert time.monotonic() < end, f"not there in time: {self.records(run_id)[-5:]}"
            self.read()
        return self.records(run_id)

    def everything(self, run_id: str) -> list[dict[str, Any]]:
        """All records of a run on the topic."""
        here = sum(end_offsets(self._consumer, self._topic))
        while len(self.messages) < here:
            self.read()
        return self.records(run_id)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _decoded(message: Message) -> dict[str, Any]:
    value = message.value()
    if message.topic() in INPUTS and value is not None and value.startswith(b"{"):
        return decode_json(catalogue.record_of(message.topic()), value, RELEASED)
    return RELEASED.decode(value)[1]


def send_probes(
    settings: ServiceSettings,
    run_id: str,
    encode: Callable[[str, dict[str, Any]], bytes] = RELEASED.encode,
) -> None:
    """Send the probe traffic of a run to every partition, as the generator does before the load."""
    now_us = time.time_ns() // 1000
    fields = {
        "run_id": protocol.probe_run_id(run_id),
        "lane": "lane1",
        "num_lanes": 1,
        "latitude": 52.0,
        "longitude": 4.0,
        "observed_at": now_us // 1000,
        "period_s": 60,
        "accuracy_percent": 90,
        "scheduled_at": now_us,
        "sequence": -1,
        "flow_vehicles_per_hour": 1,
    }
    producer = idempotent_producer(settings, "tests-probe")
    for number in range(16):
        site = f"probe-{number}"
        value = encode("traffic_flow", fields | {"measurement_id": site})
        producer.produce(FLOW, value, site)
    assert producer.flush(10) == 0


def end_open_run(settings: ServiceSettings) -> None:
    """Stop a run that a test before has left open on a shared broker: a service that starts now
    would resume it."""
    commands, _end = read_commands(settings, "tests-history")
    for command in unfinished(commands, now_ms())[:1]:
        open_events(settings, "tests").send(Stop(run_id=command.run_id))


def has_event(event: str) -> Callable[[list[dict[str, Any]]], bool]:
    """For lifecycle records: whether one of them is `event`."""
    return lambda records: any(record["event"] == event for record in records)


def started(instance: str) -> Callable[[list[dict[str, Any]]], bool]:
    """For lifecycle records: whether a service of that name has started."""
    return lambda records: any(
        r["event"] == "service_started" and r["producer"] == instance for r in records
    )


@contextmanager
def running_service(
    settings: ServiceSettings,
    name: str,
    data: Path | None = None,
    arguments: tuple[str, ...] = (),
    **variables: str,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `python -m services.NAME` on the stack of `settings`; killed at the end."""
    environment = os.environ | {
        "TIDEGAUGE_BASE_PORT": str(settings.base_port),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "TIDEGAUGE_DATA": str(data or settings.data),
        "TIDEGAUGE_BATCH_SECONDS": "0.5",  # of the store: tests wait for its rows
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", f"services.{name}", *arguments], cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
