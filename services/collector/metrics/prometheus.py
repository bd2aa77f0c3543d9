"""Prometheus endpoints as sources."""

import http.client
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.collector.metrics.exposition import read_exposition
from services.collector.metrics.samples import NoAnswerError, Sample
from services.runtime.http_deadline import connected, path_of

HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Connection": "close"}


def fetch(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """The body of a page. Raises NoAnswerError: no complete response within `timeout_s`, a status
    other than 200, or more than `max_bytes`."""
    try:
        with connected(url, timeout_s) as connection:
            connection.request("GET", path_of(url), headers=HEADERS)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise NoAnswerError(f"it answered {response.status}")
            body = response.read(max_bytes + 1)
    except TimeoutError as error:
        raise NoAnswerError(f"it did not answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(f"it does not answer: {error or type(error).__name__}") from error
    if len(body) > max_bytes:
        raise NoAnswerError(f"its answer has more than {max_bytes} bytes")
    return body


class Target(BaseModel):
    """Address of a Prometheus endpoint and the names of the wanted metrics: patterns with `*` and
    `?`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    metrics: tuple[str, ...] = Field(("*",), min_length=1, max_length=200)

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be http://host[:port]/path or https://…, without a user")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("must contain only printable ASCII")
        if parts.port == 0:
            raise ValueError("must have a port from 1 to 65535")
        return url


class Endpoint:
    """One scrape target as a source."""

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        timeout_s: float,
        max_bytes: int,
        max_series: int,
    ) -> None:
        self.name = name
        self._target = target
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._max_series = max_series

    def ask(self) -> list[Sample]:
        """Scrape it. Raises NoAnswerError."""
        body = fetch(self._target.url, self._timeout_s, self._max_bytes)
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise NoAnswerError("its answer is not UTF-8") from error
        return read_exposition(text, self._target.metrics, self._max_series)
