"""A pipeline under test: engine, mode and settings. One TOML file each in `pipelines/`."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas.model import STAGES, Model, Name, Stage
from schemas.secret_settings import looks_secret

Implementation = Literal["customised", "built-in", "state", "stateless"]
MOST = 1_000_000_000
CALIBRATED_STAGES: tuple[Stage, ...] = ("ingest", "parse", "tumbling")
# The stages of each implementation, and the modes that can run them.
IMPLEMENTED_STAGES: dict[Implementation, tuple[Stage, ...]] = {
    "customised": STAGES,
    "built-in": STAGES,
    "state": ("join", "tumbling", "sliding"),
    "stateless": ("ingest", "parse"),
}
MODES_OF: dict[Implementation, tuple[str, ...]] = {
    "customised": ("real-time", "micro-batch", "calibration", "external"),
    "built-in": ("micro-batch",),
    "state": ("micro-batch",),
    "stateless": ("continuous",),
}


class Calibration(Model):
    """What a calibration pipeline does on purpose, so that what the evaluator says can be checked.

    delay_ms: from the LogAppendTime of an output's latest input to its publication; late_ms: the
    same for those that are delayed on purpose. Faults hit one output in so many, 0 for none: by
    the input's sequence, or for a window by a checksum of its address (see
    services/calibration_pipeline/faults.py). An output gets at most one fault.
    """

    delay_ms: int = Field(0, ge=0, le=60_000)
    drop_one_in: int = Field(0, ge=0, le=MOST)
    duplicate_one_in: int = Field(0, ge=0, le=MOST)
    late_one_in: int = Field(0, ge=0, le=MOST)
    late_ms: int = Field(15_000, ge=1, le=600_000)
    corrupt_one_in: int = Field(0, ge=0, le=MOST)


class External(Model):
    """A program that is no part of Tidegauge: any that reads the input topics and writes the
    output topics.

    command: how the agent starts it for a run, from the root of the repository. Empty: the program
    runs already, somewhere else.
    """

    command: tuple[str, ...] = ()


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`). The agent starts it only where a file of its
    own machine says the same (services/runtime/trusted.py).

    implementation: `customised` is one stateful aggregation per stage that publishes when it is
    complete; `built-in` is Spark's join of two streams and its windows in append mode; `state` is
    transformWithState in Python; `stateless` has no stage that keeps anything.
    stages: those of the implementation unless given.
    batch_duration_s: real-time mode, how long a batch runs before it commits.
    trigger_interval_ms: micro-batch mode, 0 means as fast as possible; max_records_per_batch: what
    a micro-batch takes from its source at most, which bounds what a backlog puts into memory.
    checkpoint_interval_ms: continuous mode, how often offsets are committed.
    incomplete_windows: `withhold` publishes a window only when every lane of every kind is there;
    `publish`, which is what built-in windows do, publishes a window that has at least one flow and
    one speed when the watermark passes.
    watermark_s: how far behind the newest event time state is kept; window_watermark_ms: the same
    for built-in windows, which are published when it has passed their end.
    max_restarts: how often the driver is started again in one run when it was killed.
    state_store: `rocksdb`, or `hdfs`, which is Spark's default: in the memory of the process, with
    every change in files beside the checkpoint.
    quick_compiler: the driver's JVM does without the optimising compiler in a run that warms up for
    less than a minute.
    spark_conf wins over the defaults. Neither it nor jvm_options may hold what looks like a secret:
    a run publishes its pipelines as they are.
    calibration: only for mode `calibration`, which is no Spark but a copy with known delays.
    external: only for mode `external`, a program that is no part of Tidegauge.
    """

    name: Name
    summary: str
    mode: Literal["real-time", "micro-batch", "continuous", "calibration", "external"]
    implementation: Implementation = "customised"
    stages: tuple[Stage, ...] = STAGES
    incomplete_windows: Literal["withhold", "publish"] = "withhold"
    watermark_s: int = Field(10, ge=0, le=86_400)
    window_watermark_ms: int = Field(0, ge=0, le=86_400_000)
    batch_duration_s: int = Field(300, ge=5, le=86_400)
    trigger_interval_ms: int = Field(0, ge=0, le=86_400_000)
    max_records_per_batch: int = Field(1_000_000, ge=1, le=MOST)
    checkpoint_interval_ms: int = Field(1000, ge=100, le=86_400_000)
    max_restarts: int = Field(3, ge=0, le=100)
    shuffle_partitions: int = Field(1, ge=1, le=1024)
    state_store: Literal["rocksdb", "hdfs"] = "rocksdb"
    driver_memory_mb: int = Field(1024, ge=512, le=1_048_576)
    quick_compiler: bool = False
    jvm_options: tuple[str, ...] = ()
    spark_conf: dict[str, str] = Field(default_factory=dict)
    calibration: Calibration | None = None
    external: External | None = None

    @field_validator("spark_conf")
    @classmethod
    def _settings_are_public(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            if looks_secret(name, value):
                raise ValueError(_is_published(name))
        return given

    @field_validator("jvm_options")
    @classmethod
    def _options_are_public(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for option in given:
            if looks_secret("", option):
                name = re.split("[=:]", option)[0]
                raise ValueError(f"{_is_published(name)} as spark.driver.defaultJavaOptions")
        return given

    @model_validator(mode="before")
    @classmethod
    def _stages_of_the_implementation(cls, given: Any) -> Any:
        if isinstance(given, dict) and "stages" not in given:
            known: dict[Any, tuple[Stage, ...]] = {**IMPLEMENTED_STAGES}
            name = given.get("implementation", "customised")
            stages = known.get(name) if isinstance(name, str) else None
            return given if stages is None else given | {"stages": stages}
        return given

    @model_validator(mode="after")
    def _implemented(self) -> "Pipeline":
        stages, modes = IMPLEMENTED_STAGES[self.implementation], MODES_OF[self.implementation]
        if self.mode not in modes:
            raise ValueError(f"{self.implementation} runs in the modes {', '.join(modes)} only")
        if not set(self.stages) <= set(stages):
            raise ValueError(f"{self.implementation} has only the stages {', '.join(stages)}")
        kept = "publish" if self.implementation == "built-in" else "withhold"
        if self.mode != "external" and self.incomplete_windows != kept:
            raise ValueError(f"{self.implementation} can only {kept} incomplete windows")
        # Real-time mode needs its checkpoints (format 2), transformWithState its column families.
        needs_rocksdb = self.mode == "real-time" or self.implementation == "state"
        if needs_rocksdb and self.state_store != "rocksdb":
            raise ValueError(f"{self.implementation} in mode {self.mode} needs state_store rocksdb")
        return self

    @model_validator(mode="after")
    def _calibrated(self) -> "Pipeline":
        if (self.mode == "calibration") != (self.calibration is not None):
            raise ValueError("mode calibration and the table [calibration] belong together")
        if self.calibration and not set(self.stages) <= set(CALIBRATED_STAGES):
            raise ValueError(f"a calibration has only the stages {', '.join(CALIBRATED_STAGES)}")
        return self

    @model_validator(mode="after")
    def _outside(self) -> "Pipeline":
        if (self.mode == "external") != (self.external is not None):
            raise ValueError("mode external and the table [external] belong together")
        return self


def _is_published(name: str) -> str:
    return (
        f"{name} looks like a secret, and a run publishes its pipelines; "
        "set it in TIDEGAUGE_SPARK_CONF"
    )
