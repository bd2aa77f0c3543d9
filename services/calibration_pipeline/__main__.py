"""A pipeline that is no Spark: `python -m services.calibration_pipeline --pipeline NAME
--plan FILE`.

Copies, decodes and sums the inputs after a programmed delay and spoils outputs on purpose, all
stages in one thread, so that what the evaluator reports can be held against what is known. Says
READY when it reads from the plan's offsets; ends on SIGTERM or with its parent.
"""

import heapq
import itertools
import sys
import time
from collections.abc import Iterator
from threading import Event

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from schemas import catalogue, protocol
from schemas.pipeline import Calibration, Pipeline
from schemas.protocol import RunPlan
from services.calibration_pipeline.faults import CORRUPT, DROP, DUPLICATE, LATE, fault_of
from services.calibration_pipeline.stages import Made, Stages
from services.runtime.events import open_events
from services.runtime.kafka import assigned_consumer, idempotent_producer
from services.runtime.program import EXIT_STOPPED, end_with_parent, read_arguments, stages_to_run
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.stopping import stop_on_signals

MAX_WAIT_S = 0.1
MAX_BATCH = 10_000
MAX_DUE = 1_000_000  # outputs that wait for their time; reading waits meanwhile
FLUSH_TIMEOUT_S = 10.0
# Nagle's algorithm would hold small requests back until the answer to the one before has come.
AT_ONCE = {"socket.nagle.disable": True}


def main() -> int:
    """Run the pipeline until told to stop."""
    pipeline, plan = read_arguments("calibration")
    settings = load_settings(ServiceSettings)
    end_with_parent()
    stop = stop_on_signals()
    events = open_events(settings, f"runner-{pipeline.name}")
    consumer = open_inputs(settings, plan)
    producer = idempotent_producer(settings, pipeline.name, **{"linger.ms": 0, **AT_ONCE})

    events.lifecycle(protocol.READY, plan.request.run_id, pipeline=pipeline.name)
    workload = plan.request.workload
    stages = stages_to_run(pipeline, plan)
    made = Stages(stages, workload.content.format, workload.windows.get("tumbling_s", 1))
    run(consumer, Delayed(producer, pipeline), made, stop)

    producer.flush(FLUSH_TIMEOUT_S)
    consumer.close()
    return EXIT_STOPPED


def open_inputs(settings: ServiceSettings, plan: RunPlan) -> Consumer:
    """Both input topics from the start offsets on, every record as soon as it is there."""
    consumer = assigned_consumer(settings, "calibration", **{"fetch.min.bytes": 1, **AT_ONCE})
    consumer.assign(
        [
            TopicPartition(topic, partition, offset)
            for topic in catalogue.INPUTS
            for partition, offset in enumerate(plan.start_offsets[topic])
        ]
    )
    return consumer


class Delayed:
    """Outputs that wait for their time, earliest first."""

    def __init__(self, producer: Producer, pipeline: Pipeline) -> None:
        assert pipeline.calibration is not None
        self._producer = producer
        self._calibration: Calibration = pipeline.calibration
        self._pipeline = pipeline.name
        self._count = itertools.count()
        self._due: list[tuple[int, int, str, bytes | None, bytes]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, made: Made, key: bytes | None) -> None:
        """Plan the publication of one output, or what a fault makes of it."""
        fault = fault_of(made.number, self._calibration)
        if fault == DROP:
            return
        delay_ms = self._calibration.late_ms if fault == LATE else self._calibration.delay_ms
        value = made.spoilt if fault == CORRUPT else made.value
        topic = catalogue.output_topic(self._pipeline, made.stage)
        for _ in range(2 if fault == DUPLICATE else 1):
            place = (made.latest_ms + delay_ms, next(self._count))
            heapq.heappush(self._due, (*place, topic, key, value))

    def publish(self, now_ms: float) -> None:
        """Publish what is due."""
        while self._due and self._due[0][0] <= now_ms:
            _due_ms, _number, topic, key, value = heapq.heappop(self._due)
            while True:
                try:
                    self._producer.produce(topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.poll(0)

    def wait_s(self, now_ms: float) -> float:
        """How long there is nothing to publish, at most MAX_WAIT_S."""
        if not self._due:
            return MAX_WAIT_S
        return min(MAX_WAIT_S, max(0.0, (self._due[0][0] - now_ms) / 1000))


def run(consumer: Consumer, delayed: Delayed, stages: Stages, stop: Event) -> None:
    """Read, make and publish until `stop` is set. Raises KafkaException."""
    while not stop.is_set():
        now_ms = time.time() * 1000
        delayed.publish(now_ms)
        wait_s = delayed.wait_s(now_ms)
        if len(delayed) > MAX_DUE or 0 < wait_s < 0.001:
            time.sleep(wait_s)  # the client waits in whole milliseconds
            continue
        for message in read(consumer, wait_s):
            _kind, appended_ms = message.timestamp()
            for made in stages.outputs(message.topic(), message.value(), appended_ms):
                delayed.add(made, message.key())


def read(consumer: Consumer, wait_s: float) -> Iterator[Message]:
    """What has come, as soon as anything has, within `wait_s`."""
    first = consumer.poll(wait_s)
    if first is None:
        return
    for message in (first, *consumer.consume(MAX_BATCH, 0)):
        error = message.error()
        if error is None:
            yield message
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)


if __name__ == "__main__":
    sys.exit(main())
