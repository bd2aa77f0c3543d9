"""A pipeline under test: engine, mode and settings. One TOML file each in `pipelines/`."""

from typing import Literal

from pydantic import Field, model_validator

from schemas.model import STAGES, Model, Name, Stage

CALIBRATED_STAGES: tuple[Stage, ...] = ("ingest", "parse", "tumbling")


class Calibration(Model):
    """What a calibration pipeline does on purpose, so that what the evaluator says can be checked.

    delay_ms: from the LogAppendTime of an output's latest input to its publication; late_ms: the
    same for those that are delayed on purpose. Faults hit one output in so many, 0 for none: by
    the input's sequence, or for a window by a checksum of its address (see
    services/spark_pipeline/calibration_faults.py). An output gets at most one fault.
    """

    delay_ms: int = Field(0, ge=0, le=60_000)
    drop_one_in: int = Field(0, ge=0)
    duplicate_one_in: int = Field(0, ge=0)
    late_one_in: int = Field(0, ge=0)
    late_ms: int = Field(15_000, ge=1, le=600_000)
    corrupt_one_in: int = Field(0, ge=0)


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`).

    batch_duration_s: real-time mode, how long a batch runs before it commits.
    trigger_interval_ms: micro-batch mode, 0 means as fast as possible.
    incomplete_windows: `withhold` publishes a window only when every lane of every kind is there;
    `publish` publishes what there is when the watermark passes. spark_conf wins over the defaults.
    calibration: only for mode `calibration`, which is no Spark but a copy with known delays.
    """

    name: Name
    summary: str
    mode: Literal["real-time", "micro-batch", "calibration"]
    implementation: Literal["customised"] = "customised"
    stages: tuple[Stage, ...] = STAGES
    incomplete_windows: Literal["withhold", "publish"] = "withhold"
    watermark_s: int = Field(10, ge=0)
    batch_duration_s: int = Field(300, ge=5)
    trigger_interval_ms: int = Field(0, ge=0)
    shuffle_partitions: int = Field(1, ge=1, le=1024)
    driver_memory_mb: int = Field(1024, ge=512)
    spark_conf: dict[str, str] = Field(default_factory=dict)
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _calibrated(self) -> "Pipeline":
        if (self.mode == "calibration") != (self.calibration is not None):
            raise ValueError("mode calibration and the table [calibration] belong together")
        if self.calibration and not set(self.stages) <= set(CALIBRATED_STAGES):
            raise ValueError(f"a calibration has only the stages {', '.join(CALIBRATED_STAGES)}")
        return self
