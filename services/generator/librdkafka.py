"""The batch functions of librdkafka, called through ctypes.

confluent-kafka includes librdkafka. Loading its extension module gives access to the functions of
whichever copy it links to. `load()` returns None if they cannot be found (a build with hidden
symbols). Records are then sent through confluent-kafka one by one.
"""

import ctypes
from ctypes import CDLL, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache

from confluent_kafka import cimpl

PRODUCER = 0
NO_ERROR = 0
CONF_OK = 0
COPY_VALUES = 0x2
EVENT_DELIVERED = 0x1
EVENT_ERROR = 0x8
PURGE_ALL = 0x1 | 0x2
_TEXT_BYTES = 512

# Name: result type, argument types. See rdkafka.h.
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_conf_set_events": (None, (c_void_p, c_int)),
    "rd_kafka_conf_set_log_cb": (None, (c_void_p, c_void_p)),
    "rd_kafka_conf_destroy": (None, (c_void_p,)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "rd_kafka_topic_name": (c_char_p, (c_void_p,)),
    "rd_kafka_topic_destroy": (None, (c_void_p,)),
    "rd_kafka_msg_partitioner_murmur2": (
        c_int32,
        (c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_void_p),
    ),
    "rd_kafka_produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "rd_kafka_queue_get_main": (c_void_p, (c_void_p,)),
    "rd_kafka_queue_destroy": (None, (c_void_p,)),
    "rd_kafka_queue_poll": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_event_type": (c_int, (c_void_p,)),
    "rd_kafka_event_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_event_error_is_fatal": (c_int, (c_void_p,)),
    "rd_kafka_event_message_count": (c_size_t, (c_void_p,)),
    "rd_kafka_event_message_array": (c_size_t, (c_void_p, c_void_p, c_size_t)),
    "rd_kafka_event_destroy": (None, (c_void_p,)),
    "rd_kafka_purge": (c_int, (c_void_p, c_int)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_err2str": (c_char_p, (c_int,)),
}


class RdKafkaMessage(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("value", c_void_p),
        ("value_bytes", c_size_t),
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("offset", c_int64),
        ("private", c_int64),
    )


class ClientError(RuntimeError):
    """librdkafka returned an error; the text is librdkafka's."""


@cache
def load() -> CDLL:
    """The library with declared functions. Raises ClientError if it cannot be used here."""
    if ctypes.sizeof(c_void_p) != 8:
        raise ClientError("the generator needs a 64-bit system")
    try:
        library = CDLL(cimpl.__file__)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ClientError(f"librdkafka's functions for batches were not found: {error}") from error
    return library


def new_producer(library: CDLL, properties: dict[str, str]) -> int:
    """A handle of a producer that reports deliveries and errors as events, and does not log. Raises
    ClientError for an unknown property."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = library.rd_kafka_conf_new()
    for name, value in properties.items():
        done = library.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, _TEXT_BYTES)
        if done != CONF_OK:
            library.rd_kafka_conf_destroy(conf)
            raise ClientError(text.value.decode())
    library.rd_kafka_conf_set_events(conf, EVENT_DELIVERED | EVENT_ERROR)
    library.rd_kafka_conf_set_log_cb(conf, None)
    handle = library.rd_kafka_new(PRODUCER, conf, text, _TEXT_BYTES)
    if not handle:
        library.rd_kafka_conf_destroy(conf)
        raise ClientError(text.value.decode())
    return int(handle)
