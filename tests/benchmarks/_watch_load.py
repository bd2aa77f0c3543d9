"""The load of the watch benchmark: writes numbered records to a topic, and to each further one
10 ms later, at a constant rate. Ends at the end of standard input; every record is then in all.

python -m tests.benchmarks._watch_load BOOTSTRAP TOPIC… RATE FORMAT
"""

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from services.runtime.kafka import logged
from services.runtime.program import end_with_parent
from services.runtime.settings import ROOT

TICK_S = 0.01
FLUSH_S = 20.0
FILLING = "x" * 60
PROPERTIES = {
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
}


def value(number: int, written: str) -> bytes:
    """A value of about a hundred bytes."""
    if written == "json":
        return json.dumps({"order": {"id": number, "note": FILLING}, "price": 9.5}).encode()
    return b"%020d" % number + b"x" * 80


@contextmanager
def running_load(
    bootstrap: str, topics: Sequence[str], rate: int, written: str, partitions: int
) -> Iterator[None]:
    """Runs the load on new topics while the context is open. rate: records per second of each."""
    admin = AdminClient(logged("load") | {"bootstrap.servers": bootstrap})
    config = {"message.timestamp.type": "LogAppendTime"}
    new = [NewTopic(topic, partitions, 1, config=config) for topic in topics]
    for future in admin.create_topics(new).values():
        future.result(30)
    module = ("-m", "tests.benchmarks._watch_load", bootstrap, *topics, str(rate), written)
    process = subprocess.Popen([sys.executable, *module], cwd=ROOT, stdin=subprocess.PIPE)
    try:
        yield
        assert process.poll() is None, "the load has ended"
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(FLUSH_S + 10)


def main() -> None:
    """Write until the end of standard input."""
    bootstrap, *topics, rate, written = sys.argv[1:]
    producer = Producer(logged("load") | {"bootstrap.servers": bootstrap, **PROPERTIES})
    ending, ended = threading.Event(), threading.Event()

    def end() -> None:
        ending.set()
        ended.wait(FLUSH_S)

    end_with_parent(end)
    per_tick = max(1, int(int(rate) * TICK_S))
    began_s, ticks = time.monotonic(), deque([range(0)] * len(topics), len(topics))
    for tick in count():
        while (wait_s := began_s + tick * TICK_S - time.monotonic()) > 0:
            producer.poll(wait_s)
        first = tick * per_tick
        ticks.appendleft(range(first, first if ending.is_set() else first + per_tick))
        for topic, mine in zip(topics, ticks, strict=True):
            for number in mine:
                producer.produce(topic, value(number, written), b"order-%d" % number)
        producer.poll(0)
        if not any(ticks):
            break
    producer.flush(FLUSH_S)
    ended.set()


if __name__ == "__main__":
    main()
