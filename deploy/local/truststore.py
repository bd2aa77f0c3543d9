"""Writes a Java key store of the certificates that Python trusts, without Java's own tools.

The format is JKS version 2, integers big-endian: the magic FEEDFEED, the version, the count; per
entry the tag 2 (trusted certificate), an alias, a time in ms, "X.509" and the certificate in DER;
finally the SHA-1 of password (UTF-16), the phrase "Mighty Aphrodite" and everything before.
"""

import hashlib
import ssl
import struct
from collections.abc import Sequence

_HEAD = struct.Struct(">III")
_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED = 2


def trusted_certificates() -> list[bytes]:
    """The authorities that Python trusts, in DER (SSL_CERT_FILE overrides them)."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def trust_store(certificates: Sequence[bytes], password: str) -> bytes:
    """A JKS file with the certificates, protected against change by `password`."""
    entries = b"".join(_entry(index, data) for index, data in enumerate(certificates))
    store = _HEAD.pack(_MAGIC, _VERSION, len(certificates)) + entries
    key = password.encode("utf-16-be") + b"Mighty Aphrodite"
    return store + hashlib.sha1(key + store, usedforsecurity=False).digest()


def _entry(index: int, certificate: bytes) -> bytes:
    head = struct.pack(">I", _TRUSTED) + _text(f"authority-{index}") + struct.pack(">Q", 0)
    return head + _text("X.509") + struct.pack(">I", len(certificate)) + certificate


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data
