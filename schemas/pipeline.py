"""A pipeline under test: engine, mode and settings. One TOML file each in `pipelines/`."""

from typing import Literal

from pydantic import Field

from schemas.model import STAGES, Model, Name, Stage


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`).

    batch_duration_s: real-time mode, how long a batch runs before it commits.
    trigger_interval_ms: micro-batch mode, 0 means as fast as possible.
    incomplete_windows: `withhold` publishes a window only when every lane of every kind is there;
    `publish` publishes what there is when the watermark passes. spark_conf wins over the defaults.
    """

    name: Name
    summary: str
    mode: Literal["real-time", "micro-batch"]
    implementation: Literal["customised"]
    stages: tuple[Stage, ...] = STAGES
    incomplete_windows: Literal["withhold", "publish"] = "withhold"
    watermark_s: int = Field(10, ge=0)
    batch_duration_s: int = Field(300, ge=5)
    trigger_interval_ms: int = Field(0, ge=0)
    shuffle_partitions: int = Field(1, ge=1, le=1024)
    driver_memory_mb: int = Field(1024, ge=512)
    spark_conf: dict[str, str] = Field(default_factory=dict)
