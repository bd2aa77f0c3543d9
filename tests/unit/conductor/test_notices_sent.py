"""How notices are stored and posted."""

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from schemas import catalogue, codec
from schemas.events import PartDown
from schemas.suite import Notify
from services.conductor.notices import telling
from services.conductor.notices.notice import Notice
from services.conductor.notices.posting import NotTakenError, post
from services.conductor.notices.telling import MOST_WAITING, Outbox, Quiet
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.webhooks import Webhook, WebhookSettings
from services.watcher.runs import run_id_of
from tests.receiver import receiving
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit


def a_notice(number: int) -> Notice:
    return Notice(id=f"n{number}", at_ms=number, kinds=("invalid",), title=f"title {number}")


def test_what_waits_is_there_after_a_restart_and_what_was_sent_is_not(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, ("a", "b"), "stack-1")
    outbox.add(a_notice(1), ("a", "b"))
    outbox.add(a_notice(2), ("b",))
    outbox.next["results.lifecycle"] = 5
    outbox.quiet = Quiet(end=3, since_ms=9, told=True)
    outbox.done("a")
    outbox.write()
    again = Outbox(tmp_path, ("a", "b"), "stack-1")
    assert (again.first("a"), again.first("b")) == (None, a_notice(1))
    assert again.next == {"results.lifecycle": 5}
    assert again.quiet == Quiet(end=3, since_ms=9, told=True)
    assert Outbox(tmp_path, ("a",), "stack-2").quiet == Quiet()


def test_of_too_many_the_oldest_go(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, ("a",), "")
    for number in range(MOST_WAITING + 2):
        outbox.add(a_notice(number), ("a",))
    assert outbox.first("a") == a_notice(2)


def test_a_file_that_makes_no_sense_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "notices.json").write_text('{"next": 3')
    assert Outbox(tmp_path, ("a",), "").first("a") is None
    assert (tmp_path / "notices.unreadable").read_text() == '{"next": 3'


class Read:
    """A consumer that has read one record, by default the death of a part; then the broker is
    away."""

    def __init__(
        self, topic: str = catalogue.LIFECYCLE, key: bytes | None = None, value: bytes = b""
    ) -> None:
        self._topic, self._key, self._value, self._is_read = topic, key, value, False

    def consume(self, _most: int, _timeout_s: float) -> list["Read"]:
        if self._is_read:
            raise KafkaUnavailableError("Kafka cannot be reached.")
        self._is_read = True
        return [self]

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self._topic

    def key(self) -> bytes | None:
        return self._key

    def offset(self) -> int:
        return 6

    def value(self) -> bytes:
        return self._value


def a_teller(
    folder: Path, has_suite: bool = True, no_results_minutes: float = 0, now_ms: int = 0
) -> telling.Telling:
    settings = WebhookSettings(
        data=folder,
        webhooks={"a": Webhook(url="http://127.0.0.1:9/hook")},
        no_results_minutes=no_results_minutes,
    )
    return telling.Telling(settings, "s", Notify, lambda: has_suite, lambda: now_ms)


def test_what_was_read_is_told_although_the_broker_goes_away_right_then(
    tmp_path: Path,
) -> None:
    died = PartDown(part="runner", reason="It was killed.").record("stack", 1_000_000)
    record = codec.encode(catalogue.record_of(catalogue.LIFECYCLE), died)
    teller, consumer = a_teller(tmp_path), Read(value=record)
    teller._look(consumer)
    with pytest.raises(KafkaUnavailableError):
        teller._look(consumer)
    waiting = Outbox(tmp_path, ("a",), "s").first("a")
    assert waiting is not None
    assert (waiting.title, waiting.id) == ("runner died", "results.lifecycle/6")


def test_a_message_that_is_refused_does_not_delay_the_next(tmp_path: Path) -> None:
    teller = a_teller(tmp_path)
    for number in (1, 2):
        teller._outbox.add(a_notice(number), ("a",))
    with receiving() as receiver:
        receiver.answers = [503, 503, 400]
        teller._receivers["a"].url = receiver.url
        for left in (2, 1):
            teller._post_all()
            teller._post_all()  # not due yet
            assert len(receiver.answers) == left
            teller._receivers["a"].due_s = 0.0
        teller._post_all()
        assert teller._outbox.first("a") == a_notice(2)
        teller._post_all()
        assert [body["title"] for body in receiver.bodies] == ["title 2"]
    assert teller._outbox.first("a") is None


OF_WATCH = run_id_of(a_watch(), 500_000)


@pytest.mark.parametrize(
    ("run_id", "has_suite", "title"),
    [
        ("20261125-030000-ab12", True, "Results have resumed after 1 minutes"),
        (OF_WATCH, True, None),
        (OF_WATCH, False, "Results have resumed after 1 minutes"),
    ],
)
def test_results_of_a_watch_are_none_of_the_suite(
    tmp_path: Path, run_id: str, has_suite: bool, title: str | None
) -> None:
    teller = a_teller(tmp_path, has_suite, no_results_minutes=1, now_ms=61_000)
    teller._outbox.quiet = Quiet(end=6, since_ms=1_000)
    teller._outbox.watched_runs[OF_WATCH] = "w"
    (silent,) = teller._look_for_results()
    assert silent.title == "No results for 1 minutes"
    teller._look(Read(catalogue.LATENCY, run_id.encode()))
    told = teller._outbox.first("a")
    assert (told and told.title) == title
    assert teller._outbox.quiet.end == 7


def test_the_id_and_the_token_go_as_headers() -> None:
    with receiving() as receiver:
        post(receiver.url, {"title": "t"}, "results.lifecycle/7", "word", 5)
        assert receiver.bodies == [{"title": "t"}]
        (headers,) = receiver.headers
    assert headers["Idempotency-Key"] == "results.lifecycle/7"
    assert headers["Authorization"] == "Bearer word"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "for_good"),
    [(302, True), (400, True), (404, True), (408, False), (429, False), (500, False), (503, False)],
)
def test_which_answers_are_for_good(status: int, for_good: bool) -> None:
    with receiving() as receiver:
        receiver.answers = [status]
        with pytest.raises(NotTakenError, match=f"^it answered {status}$") as caught:
            post(receiver.url, {}, "1", "", 5)
        assert caught.value.for_good is for_good
        assert receiver.bodies == []  # it did not follow the redirect


def test_a_receiver_that_is_not_there_is_asked_again() -> None:
    with receiving() as receiver:
        url = receiver.url
    with pytest.raises(NotTakenError, match="cannot be reached") as caught:
        post(url, {}, "1", "", 5)
    assert not caught.value.for_good


@pytest.mark.parametrize(
    ("url", "token", "error"),
    [
        ("http://two..dots/hook", "", "UnicodeError"),
        ("http://127.0.0.1:9/hook", "schlüssel…", "UnicodeEncodeError"),
    ],
)
def test_an_address_or_token_that_cannot_be_encoded_is_refused_for_good(
    url: str, token: str, error: str
) -> None:
    with pytest.raises(NotTakenError, match=rf"^its address or token .*\({error}\)$") as caught:
        post(url, {}, "1", token, 5)
    assert caught.value.for_good


@pytest.mark.parametrize("lookup_s", [0.0, 0.4])
def test_a_receiver_that_answers_byte_by_byte_is_cut_off(
    lookup_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be complete after about 2 s, and no single byte is late; its name may resolve only
    after the deadline."""
    look_up = socket.getaddrinfo

    def looked_up(*given: Any, **options: Any) -> Any:
        time.sleep(lookup_s)
        return look_up(*given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _address = server.accept()
            with connection, suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(NotTakenError, match=r"\(TimeoutError\)$"):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, "1", "", 0.3)
        thread.join(5)
