"""Slow queries and slow connections of some clients do not block others."""

import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from services.runtime.clickhouse import query, store_url
from services.runtime.settings import ServiceSettings
from services.store.api.http_server import LIMITS
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready

pytestmark = pytest.mark.security

DEADLINE_S = 60.0
WAIT_S = 2.0
SLOW = (
    b"GET /?query=SELECT+sum(sipHash64(number))+FROM+numbers(1000000000000) HTTP/1.1\r\n"
    b"Host: localhost\r\n\r\n"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Settings of a store that runs four queries at once, with a limit of ten minutes each."""
    folder = tmp_path_factory.mktemp("store")
    settings = ServiceSettings(base_port=free_base_port(), data=folder)
    limits = {"TIDEGAUGE_QUERY_MAX_SECONDS": "600", "TIDEGAUGE_QUERY_WAIT_SECONDS": str(WAIT_S)}
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true", **limits) as process:
        until_ready(settings, process)
        yield settings


def asked(store, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", store.port("store")), timeout=DEADLINE_S)
    connection.sendall(sent)
    return connection


def anonymous_status(store) -> int:
    """Status of a quick query without a password."""
    url = f"http://127.0.0.1:{store.port('store')}/?query=SELECT+1"
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(store, status: int) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while anonymous_status(store) != status:
        assert time.monotonic() < end_s, f"not {status} in time"


def test_slow_queries_leave_a_slot_to_the_console_and_end_with_their_clients(store):
    with ExitStack() as opened:
        for _each in range(6):
            opened.enter_context(asked(store, SLOW))
        until(store, 503)  # no slot is left for clients without a password
        assert query(store_url(store), "SELECT 1 AS one") == [{"one": 1}]
        assert anonymous_status(store) == 503
    until(store, 200)  # their limit was ten minutes, but the clients have disconnected


def test_queries_on_every_connection_leave_one_to_the_console(store):
    with ExitStack() as opened:
        for _each in range(LIMITS.connections):
            opened.enter_context(asked(store, SLOW))
        end_s = time.monotonic() + WAIT_S / 2  # they wait for a slot meanwhile
        while time.monotonic() < end_s:
            assert query(store_url(store), "SELECT 1 AS one") == [{"one": 1}]
    until(store, 200)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localh"])
def test_two_hundred_slow_connections_keep_nobody_out(store, begun):
    with ExitStack() as opened:
        for _each in range(200):
            opened.enter_context(asked(store, begun))
        assert anonymous_status(store) == 200
        assert query(store_url(store), "SELECT 1 AS one") == [{"one": 1}]


def test_a_running_query_is_not_given_up_for_those_who_come_later(store):
    sent = SLOW.replace(b"1000000000000", b"300000000")
    with ExitStack() as opened:
        connection = opened.enter_context(asked(store, sent))
        for _each in range(200):
            opened.enter_context(asked(store, b"GET / HT"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
