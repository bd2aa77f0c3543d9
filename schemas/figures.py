"""Records of figures on the bus, as far as the conductor reads them one by one. The schemas in
`avro/` define them; a field that may be null or absent is not required here."""

from typing import NotRequired, TypedDict


class LatencyFigures(TypedDict):
    """Of `results.latency`. second: epoch ms; counts: of each latency."""

    pipeline: str
    stage: str
    definition: str
    phase: str
    second: int
    latencies_ms: list[int]
    counts: list[int]


class GeneratorFigures(TypedDict):
    """Of `results.generator`. second: epoch ms; counts: of each send delay, microseconds."""

    phase: str
    second: int
    send_delays_us: list[int]
    counts: list[int]
    acknowledged: int
    queue_full_us: NotRequired[int]


class ResourceFigures(TypedDict):
    """Of `results.resources`: a sample of `interval_s`, which ends at `time` (epoch ms)."""

    service: str
    pipeline: str
    producer: str
    time: int
    interval_s: float
    cpu_seconds: float
    memory_bytes: int
    jit_seconds: NotRequired[float | None]
    gc_seconds: NotRequired[float | None]
    heap_used_bytes: NotRequired[int | None]
    heap_max_bytes: NotRequired[int | None]
    run_queue_wait_seconds: NotRequired[float | None]
    steal_seconds: NotRequired[float | None]
    cpu_pressure_seconds: NotRequired[float | None]


class ThroughputFigures(TypedDict):
    """Of `results.throughput`. second: epoch ms."""

    pipeline: str
    stage: str
    second: int
    records: int


class ProgressFigures(TypedDict):
    """Of `results.pipeline`. time: epoch ms."""

    pipeline: str
    time: int
    lag_records: NotRequired[int | None]
