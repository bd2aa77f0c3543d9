"""What the proxy between a pipeline and the broker costs, and by how much it delays records.

A load writes 10,000 records/s to a topic with four partitions. A consumer reads it, and a hundred
probes per second that the same process writes straight to the broker, each with the time of its
sending by a monotonic clock. Alternately it reads:
- ours: through a proxy, as a pipeline of a run with `processing_time`;
- the peer: from the broker.
A figure is the median time from a probe's sending to its arrival; the difference of the two is what
the proxy adds. Processor time is that of the proxy's process. Intervals are 95 % intervals over the
rounds.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from schemas.catalogue import Topic
from services.runner.proxy.process import FetchProxy, Orders
from services.runtime.kafka import admin_client, ensure_topics, logged
from services.runtime.settings import ServiceSettings
from tests.benchmarks._measured import Measured, averaged, ratio
from tests.benchmarks._watch_load import running_load
from tests.integration.kafka_broker import lasting, running_broker

ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "20"))
RATE, PARTITIONS = 10_000, 4
LOAD, PROBES = "proxy_load", "proxy_probes"
PROBE_EVERY_S = 0.01
LEAST_PROBES = 100


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Milliseconds of both ways, their difference, and the proxy's cores."""
    found = Measured()
    through, direct, cores = [], [], []
    with running_broker(scratch, options=lasting()) as settings:
        ensure_topics(admin_client(settings, "bench"), [Topic(PROBES, ())])
        with (
            running_load(settings.bootstrap, (LOAD, f"{LOAD}_out"), RATE, "bytes", PARTITIONS),
            _proxy(settings) as proxy,
        ):
            _median_ms(settings, proxy.bootstrap)  # until the proxy and all topics are known
            for number in range(ROUNDS):
                process = psutil.Process(proxy.process.pid)
                before, began_s = sum(process.cpu_times()[:2]), time.monotonic()
                through.append(_median_ms(settings, proxy.bootstrap))
                used_s = sum(process.cpu_times()[:2]) - before
                cores.append(used_s / (time.monotonic() - began_s))
                direct.append(_median_ms(settings, settings.bootstrap))
                say(
                    f"round {number + 1}: {through[-1]:.2f} ms through the proxy, "
                    f"{direct[-1]:.2f} ms without; the proxy used {cores[-1]:.3f} of a core"
                )
    added = [ours - peer for ours, peer in zip(through, direct, strict=True)]
    found.figures.update(averaged("proxied_ms", through))
    found.figures.update(averaged("direct_ms", direct))
    found.figures.update(averaged("added_ms", added))
    found.figures.update(averaged("proxy_cores", cores))
    found.ratios.update(ratio("direct_to_proxied", direct, through))
    return found


@contextmanager
def _proxy(settings: ServiceSettings) -> Iterator[FetchProxy]:
    orders = Orders(run_id="bench", pipeline="bench", topics=(LOAD, PROBES))
    environ = {**os.environ, "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap}
    proxy = FetchProxy(settings, orders, settings.data / "proxy.log", environ)
    try:
        yield proxy
    finally:
        proxy.stop()


def _median_ms(settings: ServiceSettings, bootstrap: str) -> float:
    """The median time of a probe to a consumer of this address, that reads the load as well."""
    consumer = Consumer(logged("bench") | {"bootstrap.servers": bootstrap, "group.id": "bench"})
    places = [(LOAD, number) for number in range(PARTITIONS)] + [(PROBES, 0)]
    # From the ends: committed offsets need a coordinator, which a new broker may not have yet.
    consumer.assign([TopicPartition(*place, OFFSET_END) for place in places])
    ended = threading.Event()
    probing = threading.Thread(target=_probe, args=(settings.bootstrap, ended))
    probing.start()
    delays_ms, until_s = [], time.monotonic() + SECONDS
    try:
        while time.monotonic() < until_s:
            message = consumer.poll(0.1)
            if message is not None and not message.error() and message.topic() == PROBES:
                delays_ms.append((time.monotonic_ns() - int(message.value())) / 1e6)
    finally:
        ended.set()
        probing.join()
        consumer.close()
    assert len(delays_ms) >= LEAST_PROBES, f"only {len(delays_ms)} probes arrived"
    return median(delays_ms[len(delays_ms) // 4 :])


def _probe(bootstrap: str, ended: threading.Event) -> None:
    producer = Producer(logged("bench") | {"bootstrap.servers": bootstrap, "linger.ms": 0})
    while not ended.wait(PROBE_EVERY_S):
        producer.produce(PROBES, b"%d" % time.monotonic_ns())
        producer.poll(0)
    producer.flush(10)
