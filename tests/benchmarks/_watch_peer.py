"""Reads topics from now on as a watch does, with the same memory tuning, and only counts: prints
`reads`, then the number of messages per second every SECONDS. Ends at the end of standard input.

python -m tests.benchmarks._watch_peer BOOTSTRAP TOPIC…
"""

import os
import sys
import time

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from services.runtime.kafka import logged
from services.runtime.process import expect_batches, limit_arenas
from services.runtime.program import end_with_parent
from services.watcher.reading import READING
from services.watcher.watching import MOST_READ, WatchPace

SECONDS = float(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "20"))


def main() -> None:
    """Read until the end of standard input."""
    bootstrap, *topics = sys.argv[1:]
    limit_arenas()
    consumer = Consumer(logged("peer") | {"bootstrap.servers": bootstrap} | READING)
    known = consumer.list_topics(timeout=10).topics
    places = [TopicPartition(one, p, OFFSET_END) for one in topics for p in known[one].partitions]
    consumer.assign(places)
    end_with_parent()
    expect_batches()
    while not consumer.consume(MOST_READ, WatchPace.read_s):
        pass
    print("reads", flush=True)
    read, began_s = 0, time.monotonic()
    while True:
        read += len(consumer.consume(MOST_READ, WatchPace.read_s))
        if time.monotonic() > began_s + SECONDS:
            print(int(read / (time.monotonic() - began_s)), flush=True)
            read, began_s = 0, time.monotonic()


if __name__ == "__main__":
    main()
