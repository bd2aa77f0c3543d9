"""An engine in plain Python: `python engine.py PLAN`. It imports nothing of Tidegauge.

The plan (docs/write-an-engine.md) contains inputs, stages and output topics. The kinds of stages
are computed by engines/python/stages, which `engine.toml` lists as a source. This file reads and
writes. All stages run in one thread and process each record immediately.
"""

import signal
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from stages.flow import Flow
from stages.lines import Progress, end_with_parent, say
from stages.plan import Plan
from stages.reading import Reading

TICK_S = 0.02


class Engine:
    """Reads inputs, passes them to a flow, and writes its outputs."""

    def __init__(self, plan):
        self.plan, self.flow = plan, Flow(plan)
        self.reading = Reading(plan.start_offsets)
        self.progress = Progress(plan, self.reading)
        self.consumer = Consumer(
            {**plan.kafka, "group.id": plan.group, "enable.auto.commit": False}
        )
        self.consumer.assign([TopicPartition(*place) for place in plan.partitions])
        # Use the partitioner of Java clients.
        writes = {"linger.ms": plan.settings["linger_ms"], "partitioner": "murmur2_random"}
        self.producer = Producer({**plan.kafka, **writes, "enable.idempotence": True})

    def read(self, message):
        """Process one record."""
        topic, appended_ms = message.topic(), message.timestamp()[1]
        self.reading.read(topic, message.partition(), message.offset(), appended_ms)
        place = (message.partition(), message.offset())
        self.write(self.flow.read(topic, message.key(), message.value(), appended_ms, place))

    def tick(self):
        """Time-driven work: windows that are due, and progress."""
        for topic, number, _ in self.plan.partitions:
            at = TopicPartition(topic, number)
            self.reading.end(topic, number, self.consumer.get_watermark_offsets(at, cached=True)[1])
        self.write(self.flow.tick(self.reading.reached_ms(time.time() * 1000)))
        self.progress.tell()

    def write(self, messages):
        """Write the records of outputs. Waits while the producer's queue is full."""
        for topic, key, value in messages:
            while True:
                try:
                    self.producer.produce(topic, value, key)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        self.producer.poll(0)


def main():
    plan = Plan(sys.argv[-1])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    end_with_parent()
    engine = Engine(plan)
    say(event="ready", detail={"python": sys.version.split()[0]})
    ticked_s = 0.0
    while not stop.is_set():
        for message in engine.consumer.consume(1_000, 0.005):
            if message.error() is None:
                engine.read(message)
        if time.monotonic() - ticked_s >= TICK_S:
            engine.tick()
            ticked_s = time.monotonic()
    engine.producer.flush(10)


if __name__ == "__main__":
    main()
