"""Rows read and lag of the queries' Kafka consumers, from the driver's JVM.

A query in real-time or continuous mode reports only at the end of a batch, but its consumers update
their JMX metrics all the time. On a cluster they are in other JVMs and cannot be read here.
"""

import math
import re
import sys
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

DOMAIN = "kafka.consumer:"
BEANS = f"{DOMAIN}type=consumer-fetch-manager-metrics,*"
CONSUMED, LAG = "records-consumed-total", "records-lag"
# Spark's consumer group id: the given prefix, a UUID and a number.
CLIENT = re.compile(r"^consumer-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-.*-executor-\d+$")


@dataclass(frozen=True)
class Bean:
    """A JMX attribute of a consumer, or of one partition that it reads."""

    stage: str
    client: str
    attribute: str


@dataclass(frozen=True)
class Reading:
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


def readings(values: list[tuple[Bean, float]], before: dict[str, float]) -> dict[str, Reading]:
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
        stage: Reading(round(count), round(lags[stage]) if stage in lags else None)
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

    def read(self) -> dict[str, Reading]:
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
            found = [(name, bean_of(name, self._group)) for name in names]
            self._beans = [(self._named(name), bean) for name, bean in found if bean is not None]
            self._count = count
