"""How unusable records are stored."""

import pytest

from schemas import catalogue, codec
from services.runtime.events import Events, dead_letter_of
from services.runtime.kafka import event_producer
from services.runtime.settings import ServiceSettings
from tests.unit.kafka_clients import Kept, Message

pytestmark = pytest.mark.unit

BROKERS_LIMIT = 1_048_588  # of a batch, by default
LARGEST = b"v" * BROKERS_LIMIT


def letter_of(message, reason):
    producer = Kept()
    Events(producer, "tests", lambda: 5).dead_letter(dead_letter_of(message, reason))
    ((topic, letter, _key),) = producer.sent
    assert topic == catalogue.DEAD_LETTER
    return letter


@pytest.mark.parametrize("value", [None, b"", b"v" * 900_000])
def test_a_record_is_kept_whole(value):
    letter = letter_of(Message(value, b"key"), "no record")
    assert (letter["value"], letter["key"], letter["reason"]) == (value, b"key", "no record")


def test_of_one_that_would_not_pass_again_the_begin_is_kept_and_the_reason_says_so():
    letter = letter_of(Message(LARGEST, b"k" * 60_000), "no record")
    assert (letter["value"], letter["key"]) == (LARGEST[:900_000], b"k" * 50_000)
    assert letter["reason"] == (
        "its value of 1048588 bytes was truncated to 900000; "
        "its key of 60000 bytes was truncated to 50000; no record"
    )


@pytest.mark.parametrize("length", [999_000, 1_000_000, BROKERS_LIMIT, 20_000_000])
def test_the_client_takes_the_letter_of_a_record_of_any_size(length, tmp_path):
    settings = ServiceSettings(base_port=1024, data=tmp_path)
    events = Events(event_producer(settings, "tests"), "tests")
    events.dead_letter(dead_letter_of(Message(b"v" * length, b"k" * length), "\u20ac" * length))
    assert events.give_up(0) == 1


def test_the_largest_letter_is_one_that_every_client_and_broker_takes():
    producer = Kept()
    letter = dead_letter_of(Message(LARGEST, LARGEST), "\U0001f30a" * 9_000)
    Events(producer, "tests").dead_letter(letter)
    ((_topic, letter, _key),) = producer.sent
    assert len(codec.encode("dead_letter", letter)) < 1_000_000
