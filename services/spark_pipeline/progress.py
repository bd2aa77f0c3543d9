"""Reports Spark's query progress as contract lines; between batches, consumer metrics.

Rows read and lag of the queries' Kafka consumers come from the driver's JVM. A query in real-time
or continuous mode reports only at the end of a batch, but its consumers update their JMX metrics
all the time. On a cluster they are in other JVMs and cannot be read here.
"""

import json
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from schemas.engine import NO_BATCH
from services.runtime.program import Voice
from services.runtime.settings import ROOT

DOMAIN = "kafka.consumer:"
BEANS = f"{DOMAIN}type=consumer-fetch-manager-metrics,*"
CONSUMED, LAG = "records-consumed-total", "records-lag"
# Spark's consumer group id: the given prefix, a UUID and a number.
CLIENT = re.compile(r"^consumer-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-.*-executor-\d+$")
METERS_INTERVAL_S = 1.0
TASK_DELAYS = ROOT / "engines" / "spark_listener" / "TaskDelays.java"
RECENT_UPDATES = 16  # reports that Spark keeps per query


@dataclass(frozen=True)
class Bean:
    """A JMX attribute of a consumer, or of one partition that it reads."""

    stage: str
    client: str
    attribute: str


@dataclass(frozen=True)
class StageReading:
    """One stage: rows read since the previous reading, and its lag in records; None if it has read
    nothing."""

    rows: int
    lag: int | None


def group_prefix(group: str, stage: str) -> str:
    """Prefix of the consumer group ids of a stage's query."""
    return f"{group}.{stage}"


def bean_of(name: str, group: str) -> Bean | None:
    """The attribute of a bean to read for a stage; None for beans of other clients."""
    fields = dict(part.split("=", 1) for part in name.split(":", 1)[1].split(",") if "=" in part)
    client = fields.get("client-id", "").strip('"')
    matched = CLIENT.match(client)
    start = group_prefix(group, "")
    if matched is None or not matched[1].startswith(start):
        return None
    stage = matched[1].removeprefix(start)
    if "partition" in fields:
        return Bean(stage, client, LAG)
    return None if "topic" in fields else Bean(stage, client, CONSUMED)


def readings(values: list[tuple[Bean, float]], before: dict[str, float]) -> dict[str, StageReading]:
    """Readings by stage. before: rows consumed at the previous reading, by consumer; updated in
    place."""
    rows: dict[str, float] = {}
    lags: dict[str, float] = {}
    for bean, value in values:
        if math.isnan(value):
            continue
        if bean.attribute == CONSUMED:
            counted = before.get(bean.client, 0.0)
            new = value - counted if value >= counted else value  # the consumer was reopened
            rows[bean.stage] = rows.get(bean.stage, 0.0) + new
            before[bean.client] = value
        else:
            lags[bean.stage] = lags.get(bean.stage, 0.0) + max(0.0, value)
    return {
        stage: StageReading(round(count), round(lags[stage]) if stage in lags else None)
        for stage, count in rows.items()
    }


def names_in(text: str) -> list[str]:
    """Bean names in the text of a set: one call to the JVM instead of three per name."""
    return [f"{DOMAIN}{rest.removesuffix(', ')}" for rest in text.strip("[]").split(DOMAIN)[1:]]


def meters_of(spark: SparkSession, group: str) -> "ConsumerMeters | None":
    """The meters; None if the pipeline's own JVM options prevent reading them."""
    try:
        return ConsumerMeters(spark, group)
    except Py4JError as error:
        print(f"no metrics of Kafka's consumers: {error}", file=sys.stderr, flush=True)
        return None


class ConsumerMeters:
    """Reads the beans with one call each; searches for them only when their number has changed.
    Raises Py4JError if the JVM does not allow it."""

    def __init__(self, spark: SparkSession, group: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        self._named = jvm.javax.management.ObjectName
        self._pattern = self._named(BEANS)
        self._group = group
        self._count = -1
        self._beans: list[tuple[Any, Bean]] = []
        self._before: dict[str, float] = {}
        self._find()

    def read(self) -> dict[str, StageReading]:
        """Readings by stage since the previous call."""
        try:
            self._find()
            values = [
                (bean, float(self._server.getAttribute(name, bean.attribute)))
                for name, bean in self._beans
            ]
        except Py4JJavaError:  # a consumer was closed between two calls
            self._count = -1
            return {}
        return readings(values, self._before)

    def _find(self) -> None:
        count = self._server.getMBeanCount()
        if count != self._count:
            names = names_in(self._server.queryNames(self._pattern, None).toString())
            result = [(name, bean_of(name, self._group)) for name in names]
            self._beans = [(self._named(name), bean) for name, bean in result if bean is not None]
            self._count = count


def progress_fields(progress: dict[str, Any], counts_rows: bool = True) -> dict[str, Any]:
    """Fields of a progress line from the JSON of one Spark progress report.

    counts_rows: whether the state store counts rows; if not, it always reports 0.
    """
    state = progress.get("stateOperators", [])
    rows = sum(part["numRowsTotal"] for part in state) if state and counts_rows else None
    watermark = progress.get("eventTime", {}).get("watermark")
    return {
        "stage": progress["name"],
        "batch_id": progress["batchId"],
        "input_rows": progress["numInputRows"],
        "input_rows_per_second": progress.get("inputRowsPerSecond"),
        "processed_rows_per_second": progress.get("processedRowsPerSecond"),
        "batch_duration_ms": progress.get("batchDuration"),
        "state_rows": rows,
        "state_bytes": sum(part["memoryUsedBytes"] for part in state) if state else None,
        "watermark": epoch_ms(watermark) if watermark else None,
        "lag_records": lag_of(progress),
        "detail": progress,
    }


def lag_of(progress: dict[str, Any]) -> int | None:
    """Records that were on the topics of all sources and not read by the batch; None if a source
    does not report its end offsets."""
    sources, lag = progress.get("sources"), 0
    if not sources:
        return None
    for source in sources:
        ends, newest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(ends, dict) or not isinstance(newest, dict):
            return None
        for topic, offsets in newest.items():
            read = ends.get(topic, {})
            lag += sum(max(0, offset - read.get(number, 0)) for number, offset in offsets.items())
    return lag


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time in UTC, as Spark writes it."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class SchedulerDelays:
    """Counts the ended tasks of a session by scheduler delay, with a listener in the JVM. Spark
    calls listeners in Python for every event, so this one is Java, which Janino compiles: Spark has
    it for its own code. Raises Py4JError if the JVM does not allow it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(TASK_DELAYS.read_text())
        kind = compiler.getClassLoader().loadClass(f"tidegauge.{TASK_DELAYS.stem}")
        self._listener = kind.getDeclaredConstructors()[0].newInstance(None)
        spark.sparkContext._jsc.sc().addSparkListener(self._listener)

    def read(self) -> dict[int, int]:
        """Number of tasks by delay, milliseconds, since the previous call."""
        pairs = (each.split(":") for each in self._listener.takeCounts().split())
        return {int(delay): int(tasks) for delay, tasks in pairs}


def delays_of(spark: SparkSession) -> SchedulerDelays | None:
    """The counts; None if the pipeline's own JVM options prevent them."""
    try:
        return SchedulerDelays(spark)
    except Py4JError as error:
        print(f"no scheduler delays: {error}", file=sys.stderr, flush=True)
        return None


class ProgressReporter:
    """Writes one line per progress report of the given queries.

    It polls instead of using Spark's Python listener, which calls the JVM for every field of every
    report: a seventh of all processor time with short micro-batches.

    meters: consumer metrics of queries with long batches; delays: of tasks. Both are read once a
    second.
    """

    def __init__(
        self,
        voice: Voice,
        counts_rows: bool = True,
        meters: ConsumerMeters | None = None,
        delays: SchedulerDelays | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._voice = voice
        self._counts_rows = counts_rows
        self._meters = meters
        self._delays = delays
        self._clock_s = clock_s
        self._read_s = clock_s()
        self._metered: set[str] = set()
        self._newest: dict[str, str] = {}

    def report(self, queries: Sequence[StreamingQuery]) -> None:
        """Write the reports since the previous call (at most RECENT_UPDATES each), and the
        meters."""
        for query in queries:
            last = query.lastProgress
            if last is not None and last["timestamp"] != self._newest.get(query.name):
                self._say_new(query)
        passed_s = self._clock_s() - self._read_s
        if passed_s < METERS_INTERVAL_S:
            return
        self._read_s += passed_s
        if self._meters is not None:
            self._say_meters(self._meters, passed_s)
        if self._delays is not None and (tasks := self._delays.read()):
            self._voice.tasks(tasks)

    def _say_meters(self, meters: ConsumerMeters, passed_s: float) -> None:
        for stage, reading in meters.read().items():
            self._metered.add(stage)
            self._voice.progress(
                stage=stage,
                batch_id=NO_BATCH,
                input_rows=reading.rows,
                input_rows_per_second=reading.rows / passed_s,
                lag_records=reading.lag,
            )

    def _say_new(self, query: StreamingQuery) -> None:
        newest = self._newest.get(query.name, "")
        for progress in (json.loads(each.json) for each in query.recentProgress):
            if progress["timestamp"] > newest:
                fields = progress_fields(progress, self._counts_rows)
                if query.name in self._metered:
                    fields["input_rows"] = 0  # already counted by the meters
                self._voice.progress(**fields)
                self._newest[query.name] = progress["timestamp"]
