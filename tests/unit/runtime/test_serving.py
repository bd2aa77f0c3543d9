"""A service started before the broker is ready waits for a signal."""

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from services.runtime.serving import GO, _told_to_go

pytestmark = pytest.mark.unit


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of this process's standard input."""
    mine, other = os.pipe()
    with os.fdopen(mine) as stdin, os.fdopen(other, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        yield other


def test_it_goes_when_it_is_told(parent: int) -> None:
    os.write(parent, GO)
    assert _told_to_go(threading.Event())


def test_it_ends_when_nobody_is_left_who_could_tell_it(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = os.pipe()
    os.close(other)
    with os.fdopen(mine) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not _told_to_go(threading.Event())


def test_it_ends_at_a_signal(parent: int) -> None:
    stop = threading.Event()
    stop.set()
    assert not _told_to_go(stop)
