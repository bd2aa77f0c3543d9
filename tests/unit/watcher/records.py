"""Records of watched topics as returned by the Kafka client."""

import io

import fastavro
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from schemas.watch import Watch


def message(
    topic,
    value=None,
    key=None,
    ms=1_000,
    partition=0,
    offset=0,
    headers=None,
    kind=TIMESTAMP_LOG_APPEND_TIME,
):
    """One record."""
    return Message(topic, partition, offset, key, value, headers, None, (kind, ms), 0)


class Unreadable:
    """A record with key and value k, and a header whose name is not UTF-8. The second answer of the
    client would end the process."""

    def __init__(self):
        self._is_asked = False

    def headers(self):
        assert not self._is_asked
        self._is_asked = True
        raise SystemError("returned a result with an exception set")

    def key(self):
        return b"k"

    value = key

    def timestamp(self):
        return TIMESTAMP_LOG_APPEND_TIME, 1_000

    def partition(self):
        return 0

    offset = partition


def a_watch(**fields):
    """A watch of the topics `in` and `out` by key; fields override its settings."""
    plain = {"name": "w", "inputs": [{"topic": "in"}], "outputs": [{"topic": "out"}]}
    return Watch.model_validate(plain | fields)


def datum(schema, record):
    """A record in plain Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()
