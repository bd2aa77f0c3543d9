"""A service started before the broker is ready waits for a signal."""

import os
import threading
from collections.abc import Iterator

import pytest

from services.runtime.serving import GO, _told_to_go

pytestmark = pytest.mark.unit


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe: what the process reads, and its parent's."""
    mine, other = os.pipe()
    with os.fdopen(mine), os.fdopen(other, "w"):
        yield mine, other


def test_it_goes_when_it_is_told(ends: tuple[int, int]) -> None:
    os.write(ends[1], GO)
    assert _told_to_go(threading.Event(), ends[0])


def test_it_ends_when_nobody_is_left_who_could_tell_it() -> None:
    mine, other = os.pipe()
    os.close(other)
    with os.fdopen(mine):
        assert not _told_to_go(threading.Event(), mine)


def test_it_ends_at_a_signal(ends: tuple[int, int]) -> None:
    stop = threading.Event()
    stop.set()
    assert not _told_to_go(stop, ends[0])
