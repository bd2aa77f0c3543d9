"""Users, passwords, Host and Origin, bodies of requests, the hello of clickhouse-go."""

import base64
import gzip
import stat
import zlib
from email.message import Message

import lz4.frame
import pyarrow as pa
import pytest

from services.store.api.http_request import (
    BodyError,
    accepted,
    decoded,
    encoded,
    form_of,
    intrusion,
)
from services.store.api.native import hello, is_hello
from services.store.engine import EngineError
from services.store.users import Role, Users, credentials, kept_passwords

pytestmark = pytest.mark.unit
USERS = Users("read", "rule")


def headers(**named):
    message = Message()
    for name, value in named.items():
        message[name.replace("_", "-")] = value
    return message


def test_who_says_nothing_is_the_reader():
    assert USERS.role_of("", "") is Role.READER
    assert USERS.role_of("default", "") is Role.READER


def test_a_user_without_a_password_is_let_in_with_any_as_in_clickhouse():
    assert USERS.role_of("default", "null") is Role.READER
    assert not USERS.is_known("default")
    assert USERS.is_known("reader")
    with pytest.raises(EngineError, match="AUTHENTICATION_FAILED"):
        Users("read", "rule", anonymous=False).role_of("default", "null")


def test_a_password_makes_the_reader_or_the_admin():
    assert USERS.role_of("reader", "read") is Role.READER
    assert USERS.role_of("admin", "rule") is Role.ADMIN


@pytest.mark.parametrize(
    ("name", "password"),
    [("reader", ""), ("admin", ""), ("admin", "read"), ("root", "rule")],
)
def test_everybody_else_is_refused(name, password):
    with pytest.raises(EngineError, match="AUTHENTICATION_FAILED"):
        USERS.role_of(name, password)


@pytest.mark.parametrize("name", ["", "default", "reader", "admin"])
def test_an_empty_password_is_nobodys(name):
    with pytest.raises(EngineError, match="AUTHENTICATION_FAILED"):
        Users("", "", anonymous=False).role_of(name, "")


def test_nobody_reads_without_a_password_where_that_is_off():
    with pytest.raises(EngineError, match="AUTHENTICATION_FAILED"):
        Users("read", "rule", anonymous=False).role_of("default", "")


def test_passwords_do_not_show():
    assert "read" not in repr(USERS)
    assert "rule" not in repr(USERS)


def test_credentials_come_from_the_first_place_that_has_any():
    basic = "Basic " + base64.b64encode(b"b:c:d").decode()
    own = headers(X_ClickHouse_User="a", X_ClickHouse_Key="k", Authorization=basic)
    assert credentials(own, {"user": "u"}) == ("a", "k")
    assert credentials(headers(Authorization=basic), {"user": "u"}) == ("b", "c:d")
    assert credentials(headers(), {"user": "u", "password": "p"}) == ("u", "p")
    assert credentials(headers(), {}) == ("", "")
    with pytest.raises(EngineError):
        credentials(headers(Authorization="Bearer x"), {})


def test_passwords_are_made_once_and_only_their_owner_can_read_them(tmp_path):
    first = kept_passwords(tmp_path / "secrets")
    assert kept_passwords(tmp_path / "secrets") == first
    assert len(set(first)) == 2
    assert all(len(password) == 32 for password in first)
    for path in (tmp_path / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("host", ["127.0.0.1:17072", "localhost", "[::1]:1", "Tide:5"])
def test_a_host_by_which_the_store_is_known_is_let_in(host):
    assert intrusion(headers(Host=host), ("tide",)) is None


@pytest.mark.parametrize(
    "named",
    [
        {"Host": "evil.example:17072"},
        {"Host": ""},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost", "Origin": "http://evil.example"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "localhost", "Sec-Fetch-Site": "cross-site"},
        {"Host": "localhost", "Sec-Fetch-Site": "same-site"},
        {"Host": "localhost:17072", "Origin": "http://localhost:3000"},
        {"Host": "10.0.0.1"},
    ],
)
def test_a_page_of_elsewhere_is_kept_out(named):
    assert intrusion(headers(**named), ("tide",)) is not None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:17072", "http://localhost:17072"),
        ("[::1]:17072", "http://[::1]:17072"),
        ("localhost", "http://localhost:80"),
        ("localhost:443", "https://localhost"),
        ("localhost:17072", "https://tide:8443"),  # a proxy's name
    ],
)
def test_pages_of_the_store_itself_and_of_allowed_hosts_are_let_in(host, origin):
    assert intrusion(headers(Host=host, Origin=origin), ("tide",)) is None


def test_a_probe_may_name_any_address_by_its_number():
    assert intrusion(headers(Host="10.0.0.1:17072"), (), by_number=True) is None
    assert intrusion(headers(Host="evil.example"), (), by_number=True) is not None


def test_any_host_can_be_allowed_but_no_foreign_origin():
    assert intrusion(headers(Host="x"), ("*",)) is None
    assert intrusion(headers(Host="x", Origin="http://x"), ("*",)) is not None


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data, wbits=-15)),
        ("lz4", lz4.frame.compress),
        ("zstd", lambda data: pa.Codec("zstd").compress(data, asbytes=True)),
        ("br", lambda data: pa.Codec("brotli").compress(data, asbytes=True)),
        ("", bytes),
    ],
)
def test_a_body_is_decoded_and_bounded(encoding, encode):
    raw = encode(b"x" * 100)
    assert decoded(raw, encoding, 100) == b"x" * 100
    if encoding:
        with pytest.raises(BodyError, match="longer than 99"):
            decoded(raw, encoding, 99)


def test_an_encoding_that_is_not_known_or_not_what_it_says_is_refused():
    with pytest.raises(BodyError, match="snappy is not supported"):
        decoded(b"x", "snappy", 100)
    for encoding in ("gzip", "deflate", "lz4", "zstd", "br"):
        with pytest.raises(BodyError, match=f"not valid {encoding}"):
            decoded(b"not compressed at all", encoding, 100)


@pytest.mark.parametrize("encoding", ["br", "gzip", "deflate", "zstd", "lz4"])
def test_a_response_is_written_in_an_encoding_that_the_client_accepts(encoding):
    assert accepted({"Accept-Encoding": f"snappy, {encoding};q=0.5"}) == encoding
    assert decoded(encoded(b"x" * 2000, encoding), encoding, 2000) == b"x" * 2000


def test_an_encoding_with_weight_zero_is_not_accepted():
    assert accepted({"Accept-Encoding": "br;q=0, gzip"}) == "gzip"
    assert accepted({"Accept-Encoding": "identity"}) == ""
    assert accepted({}) == ""


def form(*fields, boundary=b"xyz"):
    parts = b"".join(b"--" + boundary + b"\r\n" + each + b"\r\n" for each in fields)
    return parts + b"--" + boundary + b"--\r\n"


def field(name, data, more=b""):
    return b'Content-Disposition: form-data; name="' + name + b'"' + more + b"\r\n\r\n" + data


MULTIPART = "multipart/form-data; charset=UTF-8; boundary=xyz"


def test_the_fields_of_a_form_are_parameters():
    body = form(field(b"query", b"SELECT 1\r\n+ 1"), field(b"param_x", "ä".encode()))
    assert form_of(body, MULTIPART) == {"query": "SELECT 1\r\n+ 1", "param_x": "ä"}
    assert form_of(b"SELECT 1", "application/x-www-form-urlencoded") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"SELECT 1",
        form(field(b"query", b"SELECT 1"))[:-6],
        b"before" + form(field(b"query", b"SELECT 1")),
        form(field(b"query", b"SELECT 1")) + b"after",
        form(b"no head"),
        form(field(b"query", b"x", b'; filename="/etc/passwd"')),
        form(field(b"query", b"x", b"\r\nContent-Transfer-Encoding: base64")),
        form(field(b"query", b"x", b"\r\nContent-Type: multipart/mixed; boundary=abc")),
        form(field(b"query", b"\xff")),
        form(*[field(b"a", b"")] * 1001),
        form(field(b"query", b"x", b"\r\nX: " + b"y" * 5000)),
    ],
)
def test_a_malformed_form_is_refused(body):
    with pytest.raises(BodyError):
        form_of(body, MULTIPART)


def test_only_a_form_with_a_boundary_is_read():
    for kind in ("multipart/mixed; boundary=xyz", "multipart/form-data"):
        with pytest.raises(BodyError, match="form-data with a boundary"):
            form_of(form(field(b"query", b"x")), kind)


def test_the_hello_of_clickhouse_go_is_known_by_its_text_format_and_version():
    text = "SELECT displayName(), version(), revision(), timezone()"
    assert is_hello(text, "Native", 54460)
    assert not is_hello(text, "Native", 0)
    assert not is_hello(text, "JSON", 54460)
    assert not is_hello("SELECT version()", "Native", 54460)


def test_the_hello_is_one_row_of_a_native_block_with_revision_0():
    assert hello("h", "26.9", 54_454) == (
        b"\x01\x00\x02\xff\xff\xff\xff\x00"  # block information
        b"\x04\x01"  # columns, rows
        b"\x0ddisplayName()\x06String\x00\x01h"
        b"\x09version()\x06String\x00\x0426.9"
        b"\x0arevision()\x06UInt32\x00\x00\x00\x00\x00"
        b"\x0atimezone()\x06String\x00\x03UTC"
    )
    assert b"\x06String\x01h" in hello("h", "26.9", 54_453)
