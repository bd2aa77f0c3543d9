"""Sessions over HTTP: what they keep, for whom, and for how long."""

import pytest

from services.store.api.http_server import MOST_SESSIONS, Sessions
from services.store.engine import EngineError

pytestmark = pytest.mark.unit


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def test_a_session_keeps_its_settings_for_its_user_alone(sessions: Sessions) -> None:
    sessions.of("reader", {"session_id": "a"}).choose({"extremes": "1"})
    assert sessions.of("reader", {"session_id": "a"}).settings == {"extremes": "1"}
    assert sessions.of("admin", {"session_id": "a"}).settings == {}
    assert sessions.of("reader", {"session_id": "b"}).settings == {}
    assert sessions.of("reader", {}).settings == {}


def test_a_session_ends_when_it_is_not_used(sessions: Sessions, clock: Clock) -> None:
    asked = {"session_id": "a", "session_timeout": "10"}
    sessions.of("reader", asked).choose({"extremes": "1"})
    clock.now_s = 9
    assert sessions.of("reader", asked).settings == {"extremes": "1"}
    clock.now_s = 20
    assert sessions.of("reader", asked).settings == {}


def test_a_session_that_must_exist_is_looked_for(sessions: Sessions) -> None:
    with pytest.raises(EngineError, match="SESSION_NOT_FOUND"):
        sessions.of("reader", {"session_id": "a", "session_check": "1"})
    sessions.of("reader", {"session_id": "a"})
    sessions.of("reader", {"session_id": "a", "session_check": "1"})


def test_a_request_can_end_its_session(sessions: Sessions) -> None:
    sessions.of("reader", {"session_id": "a"}).choose({"extremes": "1"})
    last = sessions.of("reader", {"session_id": "a", "close_session": "1"})
    assert last.settings == {"extremes": "1"}
    assert sessions.of("reader", {"session_id": "a"}).settings == {}


@pytest.mark.parametrize("asked", ["-1", "x", "3601", "99999999999"])
def test_the_time_of_a_session_is_bounded(sessions: Sessions, asked: str) -> None:
    with pytest.raises(EngineError, match="INVALID_SESSION_TIMEOUT"):
        sessions.of("reader", {"session_id": "a", "session_timeout": asked})


def test_the_number_and_size_of_sessions_are_bounded(sessions: Sessions, clock: Clock) -> None:
    first = sessions.of("reader", {"session_id": "first"})
    first.choose({"extremes": "1"})
    for number in range(MOST_SESSIONS):
        clock.now_s += 0.001
        sessions.of("reader", {"session_id": str(number)})
    assert sessions.of("reader", {"session_id": "first"}).settings == {}
    with pytest.raises(EngineError, match="too many settings"):
        first.choose({"a": "x" * 70_000})
    with pytest.raises(EngineError, match="too many settings"):
        first.choose({f"a{number}": "1" for number in range(300)})
