"""Raw HTTP requests to the store, as data: bytes, expected status, and state of the connection.

Each is followed on the same connection, in the same segment, by FOLLOWING. OPEN: that request gets
its own response. CLOSED: it gets none, because its start or its sender cannot be determined.
"""

from typing import Final, NamedTuple

OPEN, CLOSED = "open", "closed"
FOLLOWING: Final = (
    b"GET /?query=SELECT+4711 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)
HOST: Final = b"Host: localhost\r\n"
HIDDEN: Final = b"GET /?query=SELECT+666 HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Raw(NamedTuple):
    """sent: `{port}` is replaced by the store's. status: a full status, or 4 for 400 to 499."""

    sent: bytes
    status: int
    after: str


def get(*headers: bytes, target: bytes = b"/?query=SELECT+1") -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + lines + b"\r\n"


def post(*headers: bytes, body: bytes = b"") -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"POST / HTTP/1.1\r\n" + HOST + lines + b"\r\n" + body


def hosted(host: bytes, target: bytes = b"/?query=SELECT+1", *headers: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + lines + b"\r\n"


GOOD: Final = (
    Raw(get(), 200, OPEN),
    Raw(get(target=b"/ping"), 200, OPEN),
    Raw(get(target=b"/"), 200, OPEN),
    Raw(get(target=b"/health/live"), 200, OPEN),
    Raw(get(target=b"/health/ready"), 200, OPEN),
    Raw(get(target=b"/metrics"), 200, OPEN),
    Raw(get(target=b"/dashboards/"), 200, OPEN),
    Raw(get(target=b"/nothing"), 404, OPEN),
    Raw(get(target=b"//"), 404, OPEN),
    Raw(get(target=b"/../../etc/passwd"), 404, OPEN),
    Raw(get(target=b"/%2e%2e/secrets"), 404, OPEN),
    Raw(get(target=b"/dashboards/page/../../users.py"), 404, OPEN),
    Raw(get(target=b"/dashboards/page/%2e%2e/users.py"), 404, OPEN),
    Raw(get(target=b"/health/"), 404, OPEN),
    Raw(get(b"Content-Length: 0"), 200, OPEN),
    Raw(b"GET /ping HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n", 200, OPEN),
    Raw(b"HEAD /ping HTTP/1.1\r\n" + HOST + b"\r\n", 200, OPEN),
    Raw(post(b"Content-Length: 8", body=b"SELECT 1"), 200, OPEN),
    Raw(post(b"Transfer-Encoding: chunked", body=b"8\r\nSELECT 1\r\n0\r\n\r\n"), 200, OPEN),
    Raw(post(b"transfer-encoding: Chunked", body=b"8\r\nSELECT 1\r\n0\r\n\r\n"), 200, OPEN),
    Raw(
        post(b"Transfer-Encoding: chunked", body=b"4\r\nSELE\r\n4;x=y\r\nCT 1\r\n0\r\n\r\n"),
        200,
        OPEN,
    ),
    Raw(post(b"Content-Length: 8", b"Expect: 100-continue", body=b"SELECT 1"), 200, OPEN),
    Raw(get(b"X-Odd: \xe4\t!"), 200, OPEN),
)
# Two parsers could disagree about the end of these.
FRAMING: Final = (
    Raw(get(b"Content-Length: 8") + b"SELECT 2", 400, CLOSED),
    Raw(get(b"Content-Length: %d" % len(HIDDEN)) + HIDDEN, 400, CLOSED),
    Raw(get(b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, CLOSED),
    Raw(b"HEAD /ping HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc", 400, CLOSED),
    Raw(post(b"Content-Length: 8", b"Content-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 8", b"Content-Length: 0", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 0", b"Content-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 8, 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 8, 0", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: +8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: -8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 0x8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 8.0", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 8e0", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 1_0", body=b"SELECT 1  "), 400, CLOSED),
    Raw(post(b"Content-Length: \xb2", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length:", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: " + b"9" * 30, body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: " + b"9" * 5000, body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length: 999999999999", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length : 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content-Length\t: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b" Content-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Content\x00-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: chunkedx", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: identity", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding:\x0bchunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding: chunked\x00", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding:", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding\x20: chunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(post(b"X: y\r\n Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400, CLOSED),
    Raw(
        post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
        CLOSED,
    ),
    Raw(
        post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
        400,
        CLOSED,
    ),
    Raw(
        post(
            b"Content-Length: 8", b"Transfer-Encoding: chunked", body=b"8\r\nSELECT 1\r\n0\r\n\r\n"
        ),
        400,
        CLOSED,
    ),
    Raw(
        post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + HIDDEN),
        400,
        CLOSED,
    ),
    Raw(
        b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, CLOSED
    ),
    Raw(post(b"no colon here", b"Content-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b": empty", b"Content-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"X: a\rContent-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(post(b"X: a\nContent-Length: 8", body=b"SELECT 1"), 400, CLOSED),
    Raw(b"POST / HTTP/1.1\nHost: localhost\nContent-Length: 8\n\nSELECT 1", 400, CLOSED),
    Raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\n", 400, CLOSED),
    # Nothing may follow where the connection is to be closed.
    Raw(get(b"Connection: close"), 400, CLOSED),
    Raw(get(b"connection: CLOSE"), 400, CLOSED),
    Raw(b"GET /ping HTTP/1.0\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(post(b"Expect: 200-ok", b"Content-Length: 8", body=b"SELECT 1"), 417, CLOSED),
)
CHUNKS: Final = tuple(
    Raw(post(b"Transfer-Encoding: chunked", body=body), 400, CLOSED)
    for body in (
        b"zz\r\n",
        b"-8\r\nSELECT 1\r\n0\r\n\r\n",
        b"+8\r\nSELECT 1\r\n0\r\n\r\n",
        b"0x8\r\nSELECT 1\r\n0\r\n\r\n",
        b" 8\r\nSELECT 1\r\n0\r\n\r\n",
        b"8 \r\nSELECT 1\r\n0\r\n\r\n",
        b"8_0\r\nSELECT 1\r\n0\r\n\r\n",
        b"8\nSELECT 1\r\n0\r\n\r\n",
        b"8\r\nSELECT 1\n0\r\n\r\n",
        b"8\r\nSELECT 1XX0\r\n\r\n",
        b"8\r\nSELECT 123\r\n0\r\n\r\n",
        b"7\r\nSELECT 1\r\n0\r\n\r\n",
        b"8\r\nSELECT 1\r\n0\r\nHost: evil\r\n\r\n",
        b"8\r\nSELECT 1\r\n0\r\n" + HIDDEN,
        b"8;\x00\r\nSELECT 1\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\nSELECT 1\r\n0\r\n\r\n",
        b"\r\n8\r\nSELECT 1\r\n0\r\n\r\n",
    )
)
TARGETS: Final = (
    *(
        Raw(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED)
        for target in (
            b"*",
            b"?",
            b"?query=SELECT+1",
            b"#",
            b"http://localhost/?query=SELECT+1",
            b"http://evil.example/",
            b"localhost:80",
            b"\\",
            b"/?query=SELECT 1",
            b"/\xc3\xa4",
            b"/\x00",
            b"/\x7f",
            b"/\t",
            b"",
        )
    ),
    Raw(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 200, OPEN),
    Raw(b"GET /  HTTP/1.1\r\n" + HOST + b"\r\n", 200, OPEN),
    Raw(b"GET\t/\tHTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n", 200, OPEN),
    Raw(b"get / HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"G\x00T / HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET /\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET / HTTP/1.10\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET / http/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 400, CLOSED),
    Raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, CLOSED),
    Raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, CLOSED),
    *(
        Raw(method + b" / HTTP/1.1\r\n" + HOST + b"\r\n", 501, CLOSED)
        for method in (b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT")
    ),
    Raw(b"DEBUG / HTTP/1.1\r\n" + HOST + b"\r\n", 400, CLOSED),
)
SIZES: Final = (
    Raw(get(target=b"/?query=SELECT+1&x=" + b"x" * 70_000), 431, CLOSED),
    Raw(get(b"X: " + b"x" * 20_000), 431, CLOSED),
    Raw(get(*(b"X-%d: y" % number for number in range(200))), 400, CLOSED),
    Raw(get(*(b"X-%d: " % number + b"y" * 8000 for number in range(30))), 431, CLOSED),
    Raw(get(*(b"X-%d: y" % number for number in range(90))), 200, OPEN),
    Raw(post(b"Content-Length: 300000", body=b"x" * 1000), 400, CLOSED),
)
PATHS: Final = (
    b"/?query=SELECT+1",
    b"/",
    b"/ping",
    b"/metrics",
    b"/health/live",
    b"/health/ready",
    b"/health/wall",
    b"/dashboards/",
    b"/dashboards/api/dashboards",
    b"/rebuild",
    b"/nothing",
)
HOSTS: Final = (
    *(Raw(hosted(b"evil.example", path), 403, OPEN) for path in PATHS),
    Raw(hosted(b"evil.example:{port}"), 403, OPEN),
    Raw(hosted(b""), 403, OPEN),
    Raw(hosted(b"127.0.0.1.evil.example"), 403, OPEN),
    Raw(hosted(b"localhost.evil.example"), 403, OPEN),
    Raw(hosted(b"evil.example#localhost"), 403, OPEN),
    Raw(hosted(b"localhost@evil.example"), 403, OPEN),
    Raw(hosted(b"[::1"), 403, OPEN),
    Raw(hosted(b"10.1.2.3"), 403, OPEN),
    Raw(hosted(b"10.1.2.3:5", b"/health/ready"), 200, OPEN),
    Raw(hosted(b"127.0.0.1:{port}"), 200, OPEN),
    Raw(hosted(b"[::1]:{port}"), 200, OPEN),
    Raw(hosted(b"LOCALHOST"), 200, OPEN),
    Raw(b"GET /ping HTTP/1.1\r\n\r\n", 400, CLOSED),
    Raw(b"GET /ping HTTP/1.0\r\n\r\n", 400, CLOSED),
    Raw(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, CLOSED),
    Raw(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n", 400, CLOSED),
)
HERE: Final = b"localhost:{port}"
SITES: Final = (
    *(
        Raw(hosted(HERE, path, b"Sec-Fetch-Site: " + site), 403, OPEN)
        for site in (b"cross-site", b"same-site", b"odd", b"")
        for path in (b"/?query=SELECT+1", b"/metrics", b"/dashboards/api/dashboards")
    ),
    *(
        Raw(hosted(HERE, b"/?query=SELECT+1", b"Origin: " + origin), 403, OPEN)
        for origin in (
            b"http://evil.example",
            b"http://localhost",
            b"http://localhost:3000",
            b"http://127.0.0.1:3000",
            b"http://127.0.0.1:{port}",
            b"http://localhost.evil.example:{port}",
            b"http://localhost:{port}.evil.example",
            b"http://localhost:{port}@evil.example",
            b"http://evil.example/localhost:{port}",
            b"ftp://localhost:{port}",
            b"localhost:{port}",
            b"null",
            b"",
        )
    ),
    Raw(hosted(HERE, b"/?query=SELECT+1", b"Origin: http://localhost:{port}"), 200, OPEN),
    Raw(hosted(HERE, b"/?query=SELECT+1", b"Sec-Fetch-Site: same-origin"), 200, OPEN),
    Raw(hosted(HERE, b"/?query=SELECT+1", b"Sec-Fetch-Site: none"), 200, OPEN),
    *(
        Raw(
            hosted(HERE, path, b"Sec-Fetch-Site: " + site, b"Sec-Fetch-Dest: document"),
            status,
            OPEN,
        )
        for site in (b"cross-site", b"same-site")
        for path, status in ((b"/dashboards/", 200), (b"/?query=SELECT+1", 403), (b"/metrics", 403))
    ),
    Raw(
        hosted(HERE, b"/dashboards/", b"Sec-Fetch-Site: same-site", b"Sec-Fetch-Dest: iframe"),
        403,
        OPEN,
    ),
    Raw(
        b"POST / HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: http://localhost:3000\r\n"
        b"Content-Length: 8\r\n\r\nSELECT 1",
        403,
        OPEN,
    ),
)
REQUESTS: Final = (*GOOD, *FRAMING, *CHUNKS, *TARGETS, *SIZES, *HOSTS, *SITES)
