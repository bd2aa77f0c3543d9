"""What the Kafka consumers of the queries have read and what they have not, from the driver's JVM.

A query in real-time or continuous mode reports only at the end of a batch. Its consumers count all
the time, in beans of JMX. On a cluster they are in other JVMs, and nothing is known here.
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
# Spark's name of a group: the prefix that it was given, a UUID and a number.
CLIENT = re.compile(r"^consumer-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-.*-executor-\d+$")


@dataclass(frozen=True)
class Bean:
    """An attribute of a bean: of a consumer, or of one partition that it reads."""

    stage: str
    client: str
    attribute: str


@dataclass(frozen=True)
class Reading:
    """Of one stage: rows read since the reading before, and records that it has not read yet; None
    where it has not read any."""

    rows: int
    lag: int | None


def group_prefix(group: str, stage: str) -> str:
    """What the names of the consumer groups of a stage's query begin with."""
    return f"{group}.{stage}"


def bean_of(name: str, group: str) -> Bean | None:
    """Which attribute of a bean tells something of a stage; None for beans of other clients."""
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
    """By stage what the attributes say. before: by consumer, what it had consumed at the reading
    before; it is brought up to date."""
    rows: dict[str, float] = {}
    lags: dict[str, float] = {}
    for bean, value in values:
        if math.isnan(value):
            continue
        if bean.attribute == CONSUMED:
            counted = before.get(bean.client, 0.0)
            new = value - counted if value >= counted else value  # it was opened anew
            rows[bean.stage] = rows.get(bean.stage, 0.0) + new
            before[bean.client] = value
        else:
            lags[bean.stage] = lags.get(bean.stage, 0.0) + max(0.0, value)
    return {
        stage: Reading(round(count), round(lags[stage]) if stage in lags else None)
        for stage, count in rows.items()
    }


def names_in(text: str) -> list[str]:
    """Names of beans in the text of a set of them, which is one call instead of three a name."""
    return [f"{DOMAIN}{rest.removesuffix(', ')}" for rest in text.strip("[]").split(DOMAIN)[1:]]


def meters_of(spark: SparkSession, group: str) -> "ConsumerMeters | None":
    """The meters; None where the JVM was given options of its own that do not let them be read."""
    try:
        return ConsumerMeters(spark, group)
    except Py4JError as error:
        print(f"no metrics of Kafka's consumers: {error}", file=sys.stderr, flush=True)
        return None


class ConsumerMeters:
    """Reads them: one call for each bean, which are looked for only where their number changed.
    Raises Py4JError where the JVM does not allow it."""

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
        """By stage what its consumers have read since the last time."""
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
