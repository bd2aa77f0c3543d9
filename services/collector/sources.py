"""Metrics of others: Prometheus endpoints and the lag of consumer groups, polled in a thread of
their own, so that a slow one delays no process samples.

Lines of unwanted metrics are dropped before parsing: a cAdvisor exports thousands, and parsing one
costs some 40 microseconds. The broker knows the lag only of groups that commit offsets. Tidegauge's
services and some engines keep their offsets themselves.
"""

import http.client
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from fnmatch import translate
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.runtime.hosts import connected, path_of
from services.runtime.kafka import LAG, Place, committed_offsets, newest_offsets
from services.runtime.logs import Log
from services.runtime.process import now_ms

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
MAX_LINE_CHARACTERS: Final = 8192
_NAME = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)")
# Samples of histograms and summaries are counters, except the quantiles of a summary.
_COUNTED: Final = ("_bucket", "_count", "_sum")
HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Connection": "close"}
NAME: Final = "kafka"
MAX_GROUPS: Final = 200
MAX_PARTITIONS: Final = 5000
MAX_WAITING: Final = 100


@dataclass(frozen=True)
class Sample:
    """One series at one time. kind: counter, gauge or untyped. value: finite."""

    name: str
    labels: Mapping[str, str]
    kind: str
    value: float


class NoAnswerError(Exception):
    """A source returned nothing usable; the text is one sentence with the reason."""


class MetricsSource(Protocol):
    """A metrics source that is polled."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    def ask(self) -> list[Sample]:
        """Its current samples, within a bounded time. Raises NoAnswerError."""


class Increases:
    """Increases of the counters of one source between answers.

    A counter that decreased was reset to 0, so its increase is its current value. The increase
    between the last answer and the reset is not known.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def of(self, samples: Sequence[Sample]) -> list[float | None]:
        """The increase of each sample since the previous call; None for samples that are not
        counters and for series missing in the previous call."""
        keys = [(sample.name, frozenset(sample.labels.items())) for sample in samples]
        counters = [sample.kind == COUNTER for sample in samples]
        result = [
            growth(sample.value, self._before[key]) if counted and key in self._before else None
            for sample, key, counted in zip(samples, keys, counters, strict=True)
        ]
        self._before = {
            key: sample.value
            for sample, key, counted in zip(samples, keys, counters, strict=True)
            if counted
        }
        return result


def growth(now: float, before: float) -> float:
    """Increase of a counter; never negative."""
    now, before = max(0.0, now), max(0.0, before)
    return now - before if now >= before else now


def read_exposition(text: str, wanted: Sequence[str], max_series: int) -> list[Sample]:
    """The samples of the metrics whose names match one of the patterns (`*` and `?`).

    Values that are not finite and quoted names are skipped. Counters are always named `…_total`,
    even if the target omits the suffix. Raises NoAnswerError for invalid text, for more than
    `max_series` samples and for a line of more than 8192 characters.
    """
    lines = list(_kept(text, re.compile("|".join(translate(each) for each in wanted))))
    if sum(not line.startswith("#") for line in lines) > max_series:
        raise NoAnswerError(f"it has more than {max_series} series; ask for fewer metrics")
    if any(len(line) > MAX_LINE_CHARACTERS for line in lines):
        raise NoAnswerError(f"a line has more than {MAX_LINE_CHARACTERS} characters")
    try:
        families = list(text_string_to_metric_families("\n".join(lines)))
    except Exception as error:  # the parser raises many kinds; all mean invalid text
        raise NoAnswerError("its answer is not in Prometheus's text format") from error
    return [sample for family in families for sample in _samples(family)]


def _kept(text: str, wanted: re.Pattern[str]) -> Iterator[str]:
    """Lines of wanted metrics, all TYPE lines, and malformed lines."""
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith(("# HELP", "{")):
            continue
        name = _NAME.match(stripped)
        if name is None or wanted.fullmatch(name[1]):
            yield stripped


def _samples(family: Metric) -> Iterator[Sample]:
    for name, labels, number, *_rest in family.samples:
        value = _finite(number)
        if value is not None:
            yield Sample(name, labels, _kind(family.type, name), value)


def _finite(number: float) -> float | None:
    try:
        value = float(number)
    except OverflowError:  # the parser makes integers of any length
        return None
    return value if math.isfinite(value) else None


def _kind(family: str, name: str) -> str:
    if family in ("histogram", "summary"):
        return COUNTER if name.endswith(_COUNTED) else GAUGE
    return {"counter": COUNTER, "gauge": GAUGE}.get(family, UNTYPED)


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


def lags(committed: Mapping[str, Mapping[Place, int]], ends: Mapping[Place, int]) -> list[Sample]:
    """Lag of each group by partition, in records.

    committed: committed offset by group; negative if there is none. ends: end offsets, without
    deleted partitions, which have no lag.
    """
    return [
        Sample(
            LAG,
            {"group": group, "topic": topic, "partition": str(partition)},
            GAUGE,
            float(max(0, ends[topic, partition] - offset)),
        )
        for group, offsets in sorted(committed.items())
        for (topic, partition), offset in sorted(offsets.items())
        if offset >= 0 and (topic, partition) in ends
    ]


class ConsumerGroups:
    """All groups of the cluster as a source. connect: makes a client of the cluster."""

    def __init__(self, connect: Callable[[], AdminClient], timeout_s: float) -> None:
        self.name = NAME
        self._connect = connect
        self._admin: AdminClient | None = None
        self._timeout_s = timeout_s

    def ask(self) -> list[Sample]:
        """The current lag of every group. Raises NoAnswerError."""
        self._admin = self._admin or self._connect()
        try:
            return self._lags(self._admin)
        except (KafkaException, FutureTimeoutError) as error:
            # A client that saw the broker die does not find group coordinators again. The future
            # keeps its error and the error's frames keep the client, which would try to reconnect
            # until the next garbage collection.
            self._admin = error.__traceback__ = None
            raise NoAnswerError(f"Kafka did not answer: {str(error) or 'in time'}") from error

    def _lags(self, admin: AdminClient) -> list[Sample]:
        committed = {group: self._committed(admin, group) for group in self._groups(admin)}
        places = {place for offsets in committed.values() for place in offsets}
        return lags(committed, self._ends(admin, places))

    def _groups(self, admin: AdminClient) -> list[str]:
        asked = admin.list_consumer_groups(request_timeout=self._timeout_s)
        result = asked.result(self._timeout_s)
        if result.errors:  # such as a coordinator that is loading
            raise KafkaException(result.errors[0])  # a bare KafkaError, which callers do not handle
        groups = [each.group_id for each in result.valid]
        if len(groups) > MAX_GROUPS:
            raise NoAnswerError(f"there are more than {MAX_GROUPS} consumer groups")
        return groups

    def _committed(self, admin: AdminClient, group: str) -> dict[Place, int]:
        return committed_offsets(admin, group, self._timeout_s)

    def _ends(self, admin: AdminClient, places: set[Place]) -> dict[Place, int]:
        if len(places) > MAX_PARTITIONS:
            raise NoAnswerError(f"groups have offsets of more than {MAX_PARTITIONS} partitions")
        return newest_offsets(admin, places, self._timeout_s)


@dataclass(frozen=True)
class Scraped:
    """The samples of a source, or none; the series `up` is 1 or 0, as in Prometheus.

    time_ms: when the answer arrived, epoch milliseconds. interval_s: since the previous answer with
    samples; None for the first. increases: of each sample; see `Increases`.
    """

    source: str
    time_ms: int
    interval_s: float | None
    samples: tuple[Sample, ...]
    increases: tuple[float | None, ...]


class WatchedSource:
    """One source and the state of its last answer. Logs when it becomes available or
    unavailable."""

    def __init__(self, source: MetricsSource, log: Log) -> None:
        self._source = source
        self._log = log.bind(source=source.name)
        self._increases = Increases()
        self._answered_s: float | None = None
        self._is_up = True

    def ask(self) -> Scraped:
        """Poll it once."""
        try:
            samples = self._source.ask()
        except NoAnswerError as error:
            if self._is_up:
                self._log.warning("source_down", reason=str(error))
            self._is_up = False
            return Scraped(self._source.name, now_ms(), None, (_up(0.0),), (None,))
        if not self._is_up:
            self._log.info("source_up")
        self._is_up = True
        now_s = time.monotonic()
        interval_s = None if self._answered_s is None else now_s - self._answered_s
        self._answered_s = now_s
        whole = (_up(1.0), *samples)
        increases = tuple(self._increases.of(whole))
        return Scraped(self._source.name, now_ms(), interval_s, whole, increases)


class SourcePolling:
    """Polls every source every `interval_s` in one thread, one after the other."""

    def __init__(self, sources: Sequence[MetricsSource], interval_s: float, log: Log) -> None:
        self._watched = [WatchedSource(source, log) for source in sources]
        self._interval_s = interval_s
        self._answers: queue.Queue[Scraped] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._ask_for_ever, name="watching", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def answers(self) -> Iterator[Scraped]:
        """Answers since the last call. Raises RuntimeError if the thread has ended."""
        while True:
            try:
                yield self._answers.get_nowait()
            except queue.Empty:
                break
        if not self._thread.is_alive():
            raise RuntimeError("the thread that fetches metrics has stopped")

    def _ask_for_ever(self) -> None:
        next_s = time.monotonic()
        while True:
            for watched in self._watched:
                answer = watched.ask()
                if not self._answers.full():  # if full, the broker is down: leave a gap
                    self._answers.put_nowait(answer)
            # Skip missed polls: the next interval is longer and records its length.
            now_s = time.monotonic()
            next_s += self._interval_s * (1 + max(0.0, now_s - next_s) // self._interval_s)
            time.sleep(max(0.0, next_s - now_s))


def _up(value: float) -> Sample:
    return Sample("up", {}, GAUGE, value)
