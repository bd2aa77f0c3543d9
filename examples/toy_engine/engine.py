"""An engine in plain Python: `python engine.py PLAN`. It imports nothing of Tidegauge.

The plan (docs/write-an-engine.md) says what to read, what the stages are and where they go. What
the kinds of stages compute is in engines/python/stages, which `engine.toml` names as a source. Here
is what is the engine's own: it reads and writes. All stages run in one thread, each record at once.
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
    """Reads inputs, lets a flow work, and writes what it says."""

    def __init__(self, plan):
        self.plan, self.flow = plan, Flow(plan)
        self.reading = Reading(plan.start_offsets)
        self.progress = Progress(plan, self.reading)
        self.consumer = Consumer(
            {**plan.kafka, "group.id": plan.group, "enable.auto.commit": False}
        )
        self.consumer.assign([TopicPartition(*place) for place in plan.partitions])
        # Keys get the partitions that Java's clients give them.
        writes = {"linger.ms": plan.settings["linger_ms"], "partitioner": "murmur2_random"}
        self.producer = Producer({**plan.kafka, **writes, "enable.idempotence": True})

    def read(self, message):
        """One record."""
        topic, appended_ms = message.topic(), message.timestamp()[1]
        self.reading.read(topic, message.partition(), message.offset(), appended_ms)
        place = (message.partition(), message.offset())
        self.write(self.flow.read(topic, message.key(), message.value(), appended_ms, place))

    def tick(self):
        """What time brings: windows that are due, and progress."""
        for topic, number, _ in self.plan.partitions:
            at = TopicPartition(topic, number)
            self.reading.end(topic, number, self.consumer.get_watermark_offsets(at, cached=True)[1])
        self.write(self.flow.tick(self.reading.reached_ms(time.time() * 1000)))
        self.progress.tell()

    def write(self, messages):
        """Records of outputs."""
        for topic, key, value in messages:
            self.producer.produce(topic, value, key)
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
