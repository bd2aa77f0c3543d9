"""What a broker refuses to a client."""

import time

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from schemas import catalogue
from services.runtime.kafka import logged
from tests.traffic import INPUTS

TIMEOUT_S = 30
# Topics that only the services write.
CLOSED_TOPICS = (catalogue.CONTROL, catalogue.DEAD_LETTER, *INPUTS, *catalogue.RESULTS)


def outcome(properties: dict[str, object], topic: str) -> int | None:
    """The error code of a record produced to a topic, None if it was stored."""
    codes: list[int | None] = []
    producer = Producer(logged("tests") | properties | {"message.timeout.ms": 1000 * TIMEOUT_S})
    producer.produce(topic, b"forged", on_delivery=lambda e, _: codes.append(e and e.code()))
    producer.flush(TIMEOUT_S)
    return codes[0]


def login_error(properties: dict[str, object]) -> int:
    """The code of the first error that a client reports while it connects."""
    errors: list[KafkaError] = []
    admin = AdminClient(logged("tests") | properties | {"error_cb": errors.append})
    end_s = time.monotonic() + TIMEOUT_S
    while not errors:
        assert time.monotonic() < end_s, "no error"
        admin.poll(0.05)
    code: int = errors[0].code()
    return code
