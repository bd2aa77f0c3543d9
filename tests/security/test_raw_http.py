"""Raw requests to a real store: each gets its response, and the request after it is never
misread."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.runtime.settings import ServiceSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready
from tests.security.raw_requests import FOLLOWING, OPEN, REQUESTS, Raw

pytestmark = pytest.mark.security

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    settings = ServiceSettings(base_port=free_base_port(), data=folder)
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true") as process:
        until_ready(settings, process)
        yield settings.port("store")


def received(port: int, sent: bytes) -> bytes:
    """Everything received until the store closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        found = bytearray()
        try:
            client.sendall(sent)
            while data := client.recv(65536):
                found += data
        except (BrokenPipeError, ConnectionResetError):
            pass
    return bytes(found)


def answers(data: bytes, method: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """(status, headers, body) of each response, without interim ones."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(re.fullmatch(r"HTTP/1\.[01] (\d{3}) .*", first)[1])
        if status == 100:
            data = rest
            continue
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        length = 0 if method == b"HEAD" and not found else int(headers["content-length"])
        found.append((status, headers, rest[:length]))
        data = rest[length:]
    return found


def mistake(port: int, raw: Raw) -> str | None:
    """What is wrong with the response to a request, or None."""
    number = str(port).encode()
    sent = raw.sent.replace(b"{port}", number)
    found = answers(received(port, sent + FOLLOWING), sent.split(b" ")[0])
    statuses = [status for status, _headers, _body in found]
    if statuses != [raw.status] + [200] * (raw.after == OPEN):
        return f"{sent[:120]!r}: {statuses}"
    if raw.after == OPEN and found[1][2] != b"4711\n":
        return f"{sent[:120]!r}: followed by {found[1][2]!r}"
    if any(headers.get("x-content-type-options") != "nosniff" for _s, headers, _b in found):
        return f"{sent[:120]!r}: can be sniffed"
    return None


def test_there_are_enough():
    assert len(set(REQUESTS)) >= 198


def test_every_request_is_answered_as_it_must_be_and_no_other_is_hidden_in_it(port):
    with ThreadPoolExecutor(8) as pool:
        mistakes = list(filter(None, pool.map(lambda raw: mistake(port, raw), REQUESTS)))
    assert mistakes == []


@pytest.mark.parametrize(
    "name",
    [
        *("TSV", "CSV", "JSON", "JSONEachRow", "XML", "Markdown", "RawBLOB", "HiveText", "Values"),
        *("SQLInsert", "Vertical", "Pretty", "TSKV", "Parquet", "Native", "RowBinary", "NDJSON"),
    ],
)
def test_no_format_of_an_answer_is_a_page(port, name):
    page = b"<script>alert(1)</script>".hex().encode()
    target = b"/?query=SELECT+unhex('" + page + b"')+AS+a+FORMAT+" + name.encode()
    sent = b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    [(status, headers, body)] = answers(received(port, sent), b"GET")
    kind = headers["content-type"].split(";")[0]
    assert (status, headers["x-content-type-options"]) == (200, "nosniff")
    assert b"script" in body
    assert kind in {
        "text/plain",
        "text/csv",
        "text/tab-separated-values",
        "application/json",
        "application/x-ndjson",
        "application/octet-stream",
    }
    assert "sandbox" in headers["content-security-policy"]
