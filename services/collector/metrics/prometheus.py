"""Prometheus endpoints as sources."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.collector.metrics.exposition import read_exposition
from services.collector.metrics.fetching import fetch
from services.collector.metrics.samples import NoAnswerError, Sample


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
