"""A pipeline of Spark, with the settings that `engine.toml` describes."""

from typing import Literal

from pydantic import Field

from schemas.engine import Topology
from schemas.pipeline import Pipeline


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
    driver_memory_mb: int = 1024
    quick_compiler: bool = False
    jvm_options: tuple[str, ...] = ()
    spark_conf: dict[str, str] = Field(default_factory=dict)

    @property
    def has_own_cluster(self) -> bool:
        """Whether its executors are separate processes of its own cluster on this machine."""
        return self.standalone and self.mode == "micro-batch"

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
