"""Writes numbered records to a topic, and 10 ms later to another, at a constant rate: the load of
the benchmark of watches. Ends when its standard input does; then every record is in both topics.

python -m tests.benchmarks._watch_load BOOTSTRAP INPUT OUTPUT RATE FORMAT
"""

import json
import sys
import threading
import time
from itertools import count

from confluent_kafka import Producer

from services.runtime.program import end_with_parent

TICK_S = 0.01
FLUSH_S = 20.0
FILLING = "x" * 60
PROPERTIES = {
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
}


def value(number: int, written: str) -> bytes:
    """About a hundred bytes."""
    if written == "json":
        return json.dumps({"order": {"id": number, "note": FILLING}, "price": 9.5}).encode()
    return b"%020d" % number + b"x" * 80


def main() -> None:
    """Write until the end of standard input."""
    bootstrap, *topics, rate, written = sys.argv[1:]
    producer = Producer({"bootstrap.servers": bootstrap, **PROPERTIES})
    ending, ended = threading.Event(), threading.Event()

    def end() -> None:
        ending.set()
        ended.wait(FLUSH_S)

    end_with_parent(end)
    per_tick = max(1, int(int(rate) * TICK_S))
    began_s, before = time.monotonic(), range(0)
    for tick in count():
        while (wait_s := began_s + tick * TICK_S - time.monotonic()) > 0:
            producer.poll(wait_s)
        first = tick * per_tick
        numbers = range(first, first if ending.is_set() else first + per_tick)
        for topic, mine in zip(topics, (numbers, before), strict=True):
            for number in mine:
                producer.produce(topic, value(number, written), b"order-%d" % number)
        producer.poll(0)
        before = numbers
        if not numbers:
            break
    producer.flush(FLUSH_S)
    ended.set()


if __name__ == "__main__":
    main()
