"""When records of transactions become visible, from the batches of a partition."""

import json
import struct
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.record_batches import Batch, BatchFormatError, batches
from services.runtime.transactions import UNKNOWN_MS, CommitTimes

pytestmark = pytest.mark.unit

HEADER = struct.Struct(">qiibIhiqqqhii")
APPEND_TIME, TRANSACTIONAL, CONTROL = 0b1000, 0b1_0000, 0b10_0000
# One record each: length, attributes, deltas, and a key of version 0 and the type.
MARKERS = {commits: b"\x20\0\0\0\x08\0\0\0" + bytes([commits]) + b"\x0c" for commits in (0, 1)}


def encoded(batch):
    attributes = APPEND_TIME * batch.is_append_time + TRANSACTIONAL * batch.is_transactional
    attributes += CONTROL * (batch.commits is not None)
    body = b"anything" if batch.commits is None else MARKERS[batch.commits]
    last = batch.next_offset - batch.offset - 1
    length = HEADER.size - 12 + len(body)
    times = (batch.appended_ms, batch.appended_ms)
    head = (batch.offset, length, 0, 2, 0, attributes, last, *times)
    return HEADER.pack(*head, batch.producer, 0, -1, batch.records) + body


def records(offset, count, ms, producer=-1):
    return Batch(offset, offset + count, count, ms, producer, producer >= 0, None)


def marker(offset, ms, producer, *, commits=True):
    return Batch(offset, offset + 1, 1, ms, producer, True, commits)


@st.composite
def logs(draw):
    """Batches of a partition: of producers with transactions and of others, with markers."""
    log, begun, offset, ms = [], set(), 0, 0
    for _ in range(draw(st.integers(1, 40))):
        producer, count = draw(st.integers(-1, 3)), draw(st.integers(1, 5))
        ms += draw(st.integers(0, 700))
        if producer in begun and draw(st.booleans()):
            log.append(marker(offset, ms, producer, commits=draw(st.booleans())))
            begun.discard(producer)
        else:
            log.append(records(offset, count, ms, producer))
            begun |= {producer} - {-1}
        offset = log[-1].next_offset
    return log


def outcome_of(log, offset):
    """When a record became visible (epoch ms), `aborted`, or None while that is open. A record is
    visible at the first batch after which no transaction that began at or before it is open."""
    own = next(batch for batch in log if batch.offset <= offset < batch.next_offset)
    begun = {}
    for batch in log:
        if batch.commits is not None:
            is_own = own.is_transactional and batch.producer == own.producer
            if is_own and not batch.commits and begun[batch.producer] <= offset < batch.offset:
                return "aborted"
            del begun[batch.producer]
        elif batch.is_transactional:
            begun.setdefault(batch.producer, batch.offset)
        if batch.next_offset > offset and all(first > offset for first in begun.values()):
            return batch.appended_ms
    return None


@given(logs())
def test_every_record_has_the_time_at_which_nothing_before_it_was_open(log):
    times = CommitTimes(0)
    for batch in batches(b"".join(map(encoded, log))):
        times.add(batch)
    of_records = [batch for batch in log if batch.commits is None]
    expected = {
        offset: outcome_of(log, offset)
        for batch in of_records
        for offset in range(batch.offset, batch.next_offset)
    }
    visible = [offset for offset, ms in expected.items() if ms not in ("aborted", None)]
    assert times.is_transactional is log[0].is_transactional
    assert all(offset < times.stable_offset for offset in visible)
    assert all(expected[offset] is not None for offset in expected if offset < times.stable_offset)
    if visible:
        ms = times.visible_ms(np.array(visible))
        assert ms.tolist() == [expected[offset] for offset in visible]


@given(logs())
def test_aborted_records_are_counted_by_second_once(log):
    times, taken = CommitTimes(0), Counter()
    for batch in log:
        times.add(batch)
        times.add(batch)  # a response may begin with a batch that was read before
        taken.update(times.take_aborted())
    expected, written = Counter(), {}
    for batch in log:
        if batch.commits is None and batch.is_transactional:
            second = batch.appended_ms // 1000 * 1000
            written.setdefault(batch.producer, Counter())[second] += batch.records
        elif batch.commits is not None:
            own = written.pop(batch.producer)
            expected.update({} if batch.commits else own)
    assert taken == expected


def test_times_stay_until_they_are_forgotten():
    times = CommitTimes(10)
    for batch in (
        records(8, 4, 100, 7),  # the first two are before those of interest
        records(12, 2, 200),
        marker(14, 300, 7),
        records(15, 3, 400),
    ):
        times.add(batch)
    parts = [times.visible_ms(np.array(part)).tolist() for part in ([10, 11], [12], [13, 15])]
    assert parts == [[300, 300], [300], [300, 400]]
    times.forget(16)
    assert times.visible_ms(np.array([16, 17])).tolist() == [400, 400]


def test_what_is_forgotten_takes_no_memory_if_every_transaction_is_aborted():
    times = CommitTimes(0)
    for offset in range(0, 2_000, 2):
        times.add(records(offset, 1, offset, 7))
        times.add(marker(offset + 1, offset, 7, commits=False))
        times.forget(offset)
    assert len(times) <= 2


def test_a_response_that_ends_within_a_batch_has_the_batches_before_it():
    log = [records(0, 3, 10, 1), marker(3, 20, 1), records(4, 1, 30)]
    log = [each._replace(size=len(encoded(each))) for each in log]
    data = b"".join(map(encoded, log))
    assert list(batches(data)) == log
    ends = [len(b"".join(map(encoded, log[:count]))) for count in (1, 2, 3)]
    for length in range(len(data)):
        whole = sum(end <= length for end in ends)
        assert list(batches(data[:length])) == log[:whole]


@given(st.binary(max_size=400))
def test_bytes_that_are_no_batches_are_refused_or_end(data):
    with suppress(BatchFormatError):
        assert len(list(batches(data))) <= len(data) // HEADER.size


@given(logs(), st.data())
def test_a_changed_byte_never_raises_anything_else(log, data):
    changed = bytearray(b"".join(map(encoded, log)))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    times = CommitTimes(0)
    with suppress(BatchFormatError):
        for batch in batches(bytes(changed)):
            times.add(batch)


@given(logs(), st.data())
def test_what_was_saved_anywhere_goes_on_the_same(log, data):
    whole, times = CommitTimes(0), CommitTimes(0)
    taken, expected = Counter(), Counter()
    saved_after = data.draw(st.integers(0, len(log)))
    for number, batch in enumerate(log):
        if number == saved_after:
            taken.update(times.take_aborted())
            times = CommitTimes.restored(json.loads(json.dumps(times.saved())))
        times.add(batch)
        whole.add(batch)
    taken.update(times.take_aborted())
    expected.update(whole.take_aborted())
    offsets = np.arange(whole.stable_offset)
    assert times.visible_ms(offsets).tolist() == whole.visible_ms(offsets).tolist()
    assert (times.stable_offset, taken) == (whole.stable_offset, expected)


def test_of_records_before_the_first_nothing_is_known():
    times = CommitTimes(10)
    times.add(records(8, 4, 100, 7))
    times.add(marker(12, 300, 7))
    assert times.visible_ms(np.array([8, 9, 10, 11])).tolist() == [UNKNOWN_MS] * 2 + [300] * 2


def test_a_partition_with_times_of_producers_has_no_transactions_to_read():
    times = CommitTimes(0)
    times.add(records(0, 1, 100, 7)._replace(is_append_time=False))
    assert times.is_transactional is False


def test_batches_that_compaction_has_emptied_end_and_begin_nothing():
    """A marker without its record, and a batch without its records, whose marker was removed."""
    empty = HEADER.pack(0, HEADER.size - 12, 0, 2, 0, CONTROL + TRANSACTIONAL, 0, 5, 5, 7, 0, -1, 0)
    (ending,) = batches(empty)
    times = CommitTimes(0)
    for batch in (ending, records(1, 3, 10, 8)._replace(records=0), records(4, 1, 20)):
        times.add(batch)
    assert times.stable_offset == 5
    assert times.visible_ms(np.array([4])).tolist() == [20]
