"""Existing records of the bus, with a list in place of a broker."""

import pytest
from confluent_kafka import Message

from services.runtime.events import read_spans

pytestmark = pytest.mark.unit


class Retained:
    """A topic `t` that has the offsets from low on, by partition; its end is 9."""

    def __init__(self, *lows):
        self._lows, self._messages = lows, []

    def get_watermark_offsets(self, place, timeout):
        return self._lows[place.partition], 9

    def assign(self, places):
        for one in places:
            first = max(one.offset, self._lows[one.partition])
            self._messages += [
                Message("t", one.partition, offset, None, None, None, None, None, 0)
                for offset in range(first, 9)
            ]

    def consume(self, _most, _timeout_s):
        taken, self._messages = self._messages, []
        return taken


def test_spans_are_read_as_far_as_their_records_are_retained():
    spans = {("t", 0): (3, 5), ("t", 1): (3, 5), ("t", 2): (3, 9), ("t", 3): (0, 9)}
    found = list(read_spans(Retained(0, 4, 9, 9), spans, timeout_s=0.2))
    assert [(one.partition(), one.offset()) for one in found] == [(0, 3), (0, 4), (1, 4)]
