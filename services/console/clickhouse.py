"""Ask the store in SQL, over ClickHouse's HTTP interface."""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

TIMEOUT_S = 60.0


class QueryError(RuntimeError):
    """The store refused a query or could not be reached; the text is what it said."""


def query_bytes(url: str, sql: str, output_format: str, **parameters: str) -> bytes:
    """The answer to one query in one of ClickHouse's formats. Raises QueryError.

    `parameters` fill `{name:Type}` placeholders, so that values are never pasted into SQL.
    """
    fields = {f"param_{name}": value for name, value in parameters.items()}
    fields["default_format"] = output_format
    request = urllib.request.Request(
        f"{url}/?{urllib.parse.urlencode(fields)}", data=sql.encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        raise QueryError(error.read().decode(errors="replace").strip()) from error
    except OSError as error:
        raise QueryError(f"the store at {url} does not answer: {error}") from error


def query(url: str, sql: str, **parameters: str) -> list[dict[str, Any]]:
    """Rows of one query as dictionaries; 64-bit integers are integers. Raises QueryError."""
    settings = " SETTINGS output_format_json_quote_64bit_integers = 0"
    lines = query_bytes(url, sql + settings, "JSONEachRow", **parameters).splitlines()
    return [json.loads(line) for line in lines]
