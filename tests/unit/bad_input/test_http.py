"""Invalid requests to the store and to a service's health port: a response, and it keeps
running."""

import secrets
import socket
import struct
from email.message import Message
from http.client import HTTPConnection

import pytest
from clickhouse_cityhash.cityhash import CityHash128
from hypothesis import example, given
from hypothesis import strategies as st

from services.runtime.serving import serve_health
from services.store.api.http_interface import serve_sql
from services.store.api.http_request import (
    BodyError,
    decoded,
    form_of,
    intrusion,
    parameters_of,
    query_of,
)
from services.store.api.native import BlockError, unframed
from services.store.engine import Answer, EngineError, Query
from services.store.settings import StoreSettings
from services.store.users import Role, Users, credentials, known_users
from tests.unit.bad_input.outcomes import count, fuzzed

pytestmark = pytest.mark.unit

HEADER_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=30)
LIMIT = 1000
# Not literals: Hypothesis also tries strings of our own sources.
READER, ADMIN = secrets.token_urlsafe(), secrets.token_urlsafe()


def headers(**named: str) -> Message:
    message = Message()
    for name, value in named.items():
        message[name.replace("_", "-")] = value
    return message


@fuzzed
@given(
    encoding=st.sampled_from(["", "gzip", "zstd", "lz4", "deflate", "br"]),
    body=st.binary(max_size=40),
)
def test_a_body_is_decoded_or_refused(encoding: str, body: bytes) -> None:
    try:
        data = decoded(body, encoding, LIMIT)
    except BodyError:
        count("bodies", "refused")
    else:
        assert len(data) <= LIMIT
        assert encoding or data == body
        count("bodies", "read")


@fuzzed
@given(
    head=st.builds(
        struct.pack,
        st.just("<QQBII"),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.sampled_from([0x02, 0x82, 0x90, 0x91]),
        st.integers(0, 60) | st.integers(0, 2**32 - 1),
        st.integers(0, 60) | st.integers(0, 2**32 - 1),
    ),
    data=st.binary(max_size=40),
    is_signed=st.booleans(),
)
def test_a_compressed_block_never_exceeds_its_limit(
    head: bytes, data: bytes, is_signed: bool
) -> None:
    block = head + data
    if is_signed:
        value = CityHash128(block[16:])
        block = struct.pack("<QQ", value >> 64, value & (2**64 - 1)) + block[16:]
    try:
        found = unframed(block, LIMIT)
    except BlockError:
        count("blocks", "refused")
    else:
        assert len(found) <= LIMIT
        count("blocks", "read")


@fuzzed
@given(body=st.binary(max_size=120), kind=HEADER_TEXT)
def test_a_form_is_read_or_refused(body: bytes, kind: str) -> None:
    try:
        form_of(b"--x\r\n" + body, f"multipart/form-data; boundary={kind}")
    except BodyError:
        count("forms", "refused")
    else:
        count("forms", "read")


@fuzzed
@given(target=st.text(max_size=80), body=st.binary(max_size=80))
def test_any_target_is_a_query_or_refused_as_clickhouse_does(target: str, body: bytes) -> None:
    try:
        query = query_of(parameters_of(target), body)
    except EngineError:
        count("queries", "refused")
    else:
        assert isinstance(query, Query)
        assert not query.may_write
        count("queries", "understood")


@fuzzed
@given(
    st.dictionaries(
        st.sampled_from(
            ["Authorization", "X-ClickHouse-User", "X-ClickHouse-Key", "Host", "Origin"]
        ),
        HEADER_TEXT | HEADER_TEXT.map(lambda text: f"Basic {text}"),
    )
)
def test_nobody_becomes_the_admin_by_odd_headers(named: dict[str, str]) -> None:
    message = headers(**{name.replace("-", "_"): text for name, text in named.items()})
    assert intrusion(message, ("store",)) is None or "store" in str(intrusion(message, ("store",)))
    try:
        role = Users(READER, ADMIN).role_of(*credentials(message, {}))
    except EngineError:
        count("credentials", "refused")
    else:
        assert role is Role.READER
        count("credentials", "reader")


class Echo:
    """An engine that responds to everything with the query's format."""

    def answer(self, query: Query) -> Answer:
        if "boom" in query.text:
            raise EngineError("Code: 62. DB::Exception: boom")
        return Answer(b"1\n", "TSV", 1, 1, 0.0)

    def rows(self, _sql: str) -> list[dict[str, object]]:
        return []


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = StoreSettings(data=tmp_path_factory.mktemp("store"), base_port=max(1024, port - 2))
    server = serve_sql(settings, known_users(settings.secrets_dir, True), Echo(), lambda: True)
    yield settings.port("store")
    server.shutdown()


@pytest.fixture(scope="module")
def health():
    server = serve_health("127.0.0.1", 0, lambda: True)
    yield server.server_address[1]
    server.shutdown()


def answered(port: int, request: bytes) -> bytes:
    """The first line of the response to raw bytes; empty if the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        try:
            return client.makefile("rb").readline(500)
        except ConnectionResetError:
            return b""


def is_alive(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    alive = connection.getresponse().status == 200
    connection.close()
    return alive


RAW = st.one_of(
    st.binary(min_size=1, max_size=120),
    st.builds(
        lambda method, path, name, value, body: (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n\r\n".encode(
                "latin-1"
            )
            + body
        ),
        st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "G\0T"]),
        st.sampled_from(
            [
                "/",
                "/?query=SELECT+1",
                "/?query=boom",
                "/health/ready",
                "/nothing",
                "/?query_id=%D0%B6&query=1",
                "/?client_protocol_version=%D9%A3&query=1",
            ]
        ),
        st.sampled_from(["Content-Length", "Transfer-Encoding", "Content-Encoding", "Expect"]),
        st.sampled_from(["0", "5", "-1", "x", "chunked", "gzip", "100-continue", "9" * 5000]),
        st.binary(max_size=20),
    ),
)
GOOD = b"GET /?query=SELECT+1&query_id=%D0%B6 HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = (
    b"GET /?query=SELECT+1&client_protocol_version="
    + b"9" * 5000
    + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
)


def outcome(line: bytes) -> str:
    """The outcome from a response's first line. A server error of our own is a defect."""
    if not line.startswith(b"HTTP/"):
        # HTTP/0.9 has no status line, and connections without any valid request are closed.
        return "hung up on"
    status = int(line.split()[1])
    assert status != 500, line
    return "answered" if status < 400 else "refused"


@fuzzed
@given(request=RAW)
@example(GOOD)
@example(LONG)
def test_the_store_answers_or_hangs_up_and_goes_on(store: int, request: bytes) -> None:
    count("store", outcome(answered(store, request)))
    assert is_alive(store, "/ping")


def test_a_query_id_of_any_language_and_a_version_of_any_length_are_answered(store: int) -> None:
    assert answered(store, GOOD).startswith(b"HTTP/1.1 200")
    assert answered(store, LONG).startswith(b"HTTP/1.1 200")


@fuzzed
@given(request=RAW)
def test_health_answers_or_hangs_up_and_goes_on(health: int, request: bytes) -> None:
    line = answered(health, request)
    # Python's server responds 501 to a method it does not support.
    count("health", outcome(line))
    assert is_alive(health, "/health/ready")
