"""A registry with invalid responses."""

import pytest

from schemas.watch import Registry as Address
from services.watcher.schema_ids import SchemaIds, SchemaMissingError, asking
from tests.integration.registry_double import Registry, serving

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"nothing of HTTP\r\n\r\n", "its answer is cut off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "its answer is cut off"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000, "it is nested too deeply"),
        (b"HTTP/1.0 200 OK\r\n\r\n[]", "its answer is not that of a schema registry"),
    ],
)
def test_a_malformed_answer_is_a_reason(raw, said):
    with serving(Registry("reader", "secret")) as registry:
        registry.raw[1] = raw
        address = Address(url=registry.url, user="reader", password="secret")
        with pytest.raises(SchemaMissingError, match=f"schema 1 was not found: {said}"):
            SchemaIds({}, asking(address)).schema(1)
