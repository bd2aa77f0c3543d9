"""One page over HTTP: within its limits, or an error with a reason."""

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from services.collector.sources import Endpoint, NoAnswerError, Sample, Target, fetch

pytestmark = pytest.mark.unit

TIMEOUT_S = 5.0
PAGE = b"up_to_here 1\n"


class Pages(BaseHTTPRequestHandler):
    """Responds as the path says, and records the requested paths."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name = self.path.partition("?")[0].removeprefix("/")
        getattr(self, name)()

    def metrics(self, body: bytes = PAGE, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def moved(self) -> None:
        self.metrics(b"", 302, Location="/metrics")

    def broken(self) -> None:
        self.metrics(PAGE, 500)

    def latin(self) -> None:
        self.metrics("grüße 1\n".encode("latin-1"))

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):  # until the client disconnects
            while True:
                self.wfile.write(b"x" * 65_536)

    def slow(self) -> None:
        """Send a complete response, a byte at a time."""
        with suppress(OSError):
            for byte in b"HTTP/1.0 200 OK\r\n\r\n" + PAGE:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)

    def nonsense(self) -> None:
        self.wfile.write(b"SSH-2.0-none\r\n")

    def nothing(self) -> None:
        """Close the connection."""

    def log_message(self, format: str, *args: object) -> None:
        """Do not log."""


@pytest.fixture
def server():
    Pages.asked = []
    found = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    found.daemon_threads = True
    threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def test_a_page_is_its_body_and_the_query_is_sent(server):
    assert fetch(f"{server}/metrics?name[]=a&name[]=b", TIMEOUT_S, 1000) == PAGE
    assert Pages.asked == ["/metrics?name[]=a&name[]=b"]


def test_a_page_of_just_the_bound_is_read(server):
    assert fetch(f"{server}/metrics", TIMEOUT_S, len(PAGE)) == PAGE


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("moved", r"^it answered 302$"),
        ("broken", r"^it answered 500$"),
        ("endless", r"^its answer has more than 1000 bytes$"),
        ("nonsense", r"^it does not answer: SSH-2\.0-none"),
        ("nothing", r"^it does not answer: Remote end closed connection without response$"),
    ],
)
def test_anything_else_is_a_reason_and_nothing_is_followed(page, reason, server):
    with pytest.raises(NoAnswerError, match=reason):
        fetch(f"{server}/{page}", TIMEOUT_S, 1000)
    assert Pages.asked == [f"/{page}"]


def test_a_page_that_comes_byte_by_byte_is_given_up(server):
    """It would be complete after about 3 s, and no single byte is late."""
    with pytest.raises(NoAnswerError, match=r"^it did not answer within 0\.5 s$"):
        fetch(f"{server}/slow", 0.5, 1000)


def test_a_port_where_nobody_listens_is_a_reason():
    with pytest.raises(NoAnswerError, match=r"^it does not answer: .*refused"):
        fetch("http://127.0.0.1:1/metrics", TIMEOUT_S, 1000)


def endpoint(url, *wanted):
    target = Target(url=url, metrics=wanted or ("*",))
    return Endpoint("x", target, timeout_s=TIMEOUT_S, max_bytes=1000, max_series=10)


def test_an_endpoint_gives_the_samples_of_its_page(server):
    assert endpoint(f"{server}/metrics").ask() == [Sample("up_to_here", {}, "untyped", 1.0)]
    assert endpoint(f"{server}/metrics", "other").ask() == []


def test_a_page_that_is_not_utf_8_is_a_reason(server):
    with pytest.raises(NoAnswerError, match=r"^its answer is not UTF-8$"):
        endpoint(f"{server}/latin").ask()
