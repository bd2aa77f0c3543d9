"""A plain consumer and producer that copies the input topics to `output.copy.ingest`: the cost of
reading and writing with the Kafka client, which is the floor of every pipeline. Prints `ready`;
ends on SIGTERM.

    python -m tests.benchmarks._copy
"""

from confluent_kafka import TopicPartition

from schemas import catalogue
from services.runtime.kafka import assigned_consumer, ends_of, idempotent_producer
from services.runtime.process import stop_on_signals
from services.runtime.settings import ServiceSettings, load_settings
from tests.traffic import INPUTS

TOPIC = catalogue.output_topic("copy", "ingest")


def main() -> None:
    """Copy from now on until stopped."""
    settings, stop = load_settings(ServiceSettings), stop_on_signals()
    consumer = assigned_consumer(settings, "bench-copy", **{"fetch.min.bytes": 1})
    ends = ends_of(consumer, INPUTS)
    consumer.assign([TopicPartition(*place, offset) for place, offset in ends.items()])
    producer = idempotent_producer(settings, "bench-copy", **{"linger.ms": 2})
    print("ready", flush=True)
    while not stop.is_set():
        for message in consumer.consume(10_000, 0.1):
            while True:
                try:
                    producer.produce(TOPIC, message.value(), message.key())
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    producer.flush(10)


if __name__ == "__main__":
    main()
