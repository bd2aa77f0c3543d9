"""Arbitrary bytes instead of the Kafka protocol: refused, or passed on as they are."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.proxy.wire import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    MAX_PENDING,
    METADATA,
    Answers,
    ProtocolError,
    Requests,
)

pytestmark = pytest.mark.unit

PRODUCE = 0


def same(host, port):
    return host, port


def framed(body):
    return struct.pack(">i", len(body)) + body


@given(
    st.sampled_from([FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER]),
    st.integers(0, 20),
    st.binary(max_size=300),
    st.integers(1, 40),
)
def test_an_answer_of_any_bytes_is_passed_on_or_refused(api, version, body, step):
    answers = Answers(same)
    answers.expect(7, api, version)
    frame = framed(struct.pack(">i", 7) + body)
    parts = [frame[at : at + step] for at in range(0, len(frame), step)]
    try:
        passed_on = b"".join(map(answers.feed, parts))
    except ProtocolError:
        return
    if api == FETCH:
        assert passed_on == frame
    assert all(each.last_offset >= 0 for each in answers.take_handed())


@given(st.binary(max_size=200), st.integers(1, 40))
def test_requests_of_any_bytes_are_passed_on_or_refused(data, step):
    requests = Requests(Answers(same))
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    try:
        assert b"".join(map(requests.feed, parts)) == data
    except ProtocolError:
        return


def test_requests_without_an_answer_are_left_out_and_answers_without_a_request_refused():
    answers = Answers(same)
    for number, api in ((1, PRODUCE), (2, METADATA), (3, PRODUCE)):
        answers.expect(number, api, 9)
    frame = framed(struct.pack(">i", 3) + b"any")
    assert answers.feed(frame) == frame
    with pytest.raises(ProtocolError, match="no request"):
        answers.feed(frame)


def test_the_number_of_requests_that_wait_is_bounded():
    answers = Answers(same)
    for number in range(MAX_PENDING):
        answers.expect(number, PRODUCE, 9)
    with pytest.raises(ProtocolError, match="too many"):
        answers.expect(MAX_PENDING, PRODUCE, 9)


@pytest.mark.parametrize("size", [-1, 3, 1 << 30 | 1])
def test_a_frame_of_an_impossible_size_is_refused(size):
    answers = Answers(same)
    answers.expect(1, PRODUCE, 9)
    with pytest.raises(ProtocolError, match="bytes"):
        answers.feed(struct.pack(">ii", size, 1))
