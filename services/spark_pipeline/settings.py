"""Settings of Spark pipelines: the master and what it needs, and those that `engine.toml`
describes."""

import os
import re
from collections.abc import MutableMapping
from typing import Literal

from pydantic import Field, field_validator

from schemas.engine import Topology
from schemas.model import looks_secret
from schemas.pipeline import Pipeline
from services.runtime.kafka_security import java_properties
from services.runtime.settings import ServiceSettings

ON_COMMAND_LINES = (
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
    "spark.executor.extraJavaOptions",
)
SECRET_VARIABLES = (
    "TIDEGAUGE_KAFKA_PROPERTIES",
    "TIDEGAUGE_SPARK_CONF",
    "TIDEGAUGE_SPARK_KAFKA_PROPERTIES",
)


class SparkSettings(ServiceSettings):
    """Fields of Spark pipelines, in addition to those of every service.

    spark_master: `spark://HOST:PORT`, `k8s://…` or `local[N]`; empty means a local one with as many
    slots as the queries need. A cluster must have that many free cores for each pipeline; it may
    offer more cores than its machines have.
    spark_driver_host: address at which executors reach the driver.
    spark_checkpoints: URI reachable by the driver and all executors, for checkpoints, which are not
    removed there; empty means the folder of the run, for a single machine.
    spark_conf: Spark settings, which override a pipeline's own. May contain secrets: they are not
    published and not passed on a command line, so settings that go on a JVM's command line cannot
    contain any.
    spark_kafka_properties: properties of Java Kafka clients, in addition to the security properties
    derived from kafka_properties.
    """

    spark_master: str = ""
    spark_driver_host: str = "127.0.0.1"
    spark_checkpoints: str = ""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    spark_kafka_properties: dict[str, str] = Field(default_factory=dict)

    @field_validator("spark_master")
    @classmethod
    def _known_master(cls, master: str) -> str:
        if master and not re.fullmatch(r"local\[[0-9]+\]|(spark|k8s)://.+", master):
            raise ValueError("must be local[N], spark://… or k8s://…")
        return master

    @field_validator("spark_conf")
    @classmethod
    def _closed_command_lines(cls, conf: dict[str, str]) -> dict[str, str]:
        for name in ON_COMMAND_LINES:
            if looks_secret("", conf.get(name, "")):
                raise ValueError(
                    f"{name} is on the JVM's command line, which all users of the machine see, so"
                    " it cannot hold a secret"
                )
        return conf

    def kafka_options(self, bootstrap: str) -> dict[str, str]:
        """Options of every Kafka source and sink. bootstrap: the servers."""
        given = java_properties(self.kafka_properties) | self.spark_kafka_properties
        own = {f"kafka.{name}": value for name, value in given.items()}
        return {"kafka.bootstrap.servers": bootstrap, **own}


def forget_secret_variables(environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove settings with secrets from the environment after reading them: the JVM and Spark's
    Python workers inherit it and do not need them."""
    for name in SECRET_VARIABLES:
        environ.pop(name, None)


def without_secrets(conf: dict[str, str]) -> dict[str, str]:
    """The same settings with secret values replaced by `***`."""
    return {name: "***" if looks_secret(name, value) else value for name, value in conf.items()}


class SparkPipeline(Pipeline):
    """Settings as fields. Defaults are those of `engine.toml`, which also validates them."""

    engine: str = "spark"
    mode: Literal["real-time", "micro-batch", "continuous"]
    implementation: Literal["customised", "built-in", "state", "stateless", "own"] = "customised"
    topology: Topology = "independent"
    watermark_s: int = 10
    window_watermark_ms: int = 0
    batch_duration_s: int = 300
    trigger_interval_ms: int = 0
    max_records_per_batch: int = 1_000_000
    checkpoint_interval_ms: int = 1000
    shuffle_partitions: int = 1
    workers: int = 0
    standalone: bool = False
    state_store: Literal["rocksdb", "hdfs"] = "rocksdb"
    linger_ms: int = 0
    batch_kb: int = 32
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "none"
    driver_memory_mb: int = 1024
    quick_compiler: bool = False
    jvm_options: tuple[str, ...] = ()
    spark_conf: dict[str, str] = Field(default_factory=dict)

    @property
    def has_own_cluster(self) -> bool:
        """Whether its executors are separate processes of its own cluster on this machine."""
        return self.standalone and self.mode == "micro-batch"

    @property
    def producer(self) -> dict[str, str]:
        """Options of a sink for its Kafka producers."""
        return {
            "kafka.linger.ms": str(self.linger_ms),
            "kafka.batch.size": str(1024 * self.batch_kb),
            "kafka.compression.type": self.compression,
        }

    @property
    def starts_python(self) -> bool:
        """Whether a first batch that ends soon starts Python workers."""
        return self.implementation in ("state", "own") and self.mode == "micro-batch"

    @property
    def closes_windows(self) -> bool:
        """Whether windows are published when the watermark has passed their end (append mode)
        instead of when they are complete (update mode)."""
        closes = self.implementation == "own" and self.incomplete_windows == "publish"
        return closes or self.implementation == "built-in"
