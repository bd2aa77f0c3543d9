"""The topics read by the evaluator benchmark: the inputs of traffic and the correct outputs of its
five stages.

Eight seconds of event time, 25,000 lanes: 200,000 records in each input topic, 400,000 outputs of
ingest and parse, 200,000 of join, 50,000 of tumbling and 37,500 of sliding.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyruhvro

from schemas import catalogue
from schemas.load import Constant
from schemas.protocol import (
    Judgement,
    PhasePlan,
    Phases,
    Pipeline,
    RunPlan,
    RunRequest,
    Workload,
)
from services.runtime.kafka import (
    admin_client,
    assigned_consumer,
    end_offsets,
    ensure_topics,
    idempotent_producer,
)
from services.runtime.settings import ServiceSettings
from tests.traffic import CODEC, STAGES, TRAFFIC, output_topics

RUN_ID = "bench"
PARTITIONS = 4
SITES, LANES, SECONDS = 6_250, 4, 8
PER_TOPIC = SITES * LANES * SECONDS  # inputs of one kind
OF_STAGE = {
    "ingest": 2 * PER_TOPIC,
    "parse": 2 * PER_TOPIC,
    "join": PER_TOPIC,
    "tumbling": SITES * SECONDS,
    "sliding": SITES * (SECONDS - 2),
}
FLOW, SPEED = "flow_vehicles_per_hour", "speed_km_per_hour"
Rows = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """Records for one topic, all with one key column."""

    topic: str
    record: str
    rows: Rows


def output_of(stage: str) -> str:
    """Output topic of a stage."""
    return catalogue.output_topic(RUN_ID, stage)


def messages_of(stages: tuple[str, ...]) -> int:
    """Number of records in the inputs and the output topics of some stages."""
    return 2 * PER_TOPIC + sum(OF_STAGE[stage] for stage in stages)


def fill(settings: ServiceSettings, folder: Path) -> dict[str, Path]:
    """Write the topics; returns files with a run's plan and phases: for all stages, and for parse
    only."""
    topics_of = output_topics(RUN_ID, partitions=PARTITIONS)
    ensure_topics(admin_client(settings, "bench"), topics_of)
    consumer = assigned_consumer(settings, "bench")
    start_ms = int(time.time()) * 1000
    plans = {}
    for name, stages in (("stages", STAGES), ("parse", ("parse",))):
        topics = (*TRAFFIC.topics, *map(output_of, stages))
        offsets = {topic: end_offsets(consumer, topic) for topic in topics}
        plan = RunPlan(request=request(stages), start_offsets=offsets)
        phases = PhasePlan(load_start_ms=start_ms, phases=plan.request.workload.phases)
        plans[name] = folder / f"{name}.json"
        plans[name].write_text(plan.model_dump_json() + "\n" + phases.model_dump_json())
    consumer.close()
    for content in contents(start_ms):
        _write(settings, content)
    return plans


def read_plan(path: Path) -> tuple[RunPlan, PhasePlan]:
    """Read a file written by `fill`."""
    plan, phases = path.read_text().splitlines()
    return RunPlan.model_validate_json(plan), PhasePlan.model_validate_json(phases)


def request(stages: tuple[str, ...]) -> RunRequest:
    """The request of the run that these topics belong to."""
    workload = Workload(
        name="bench",
        summary="Filled beforehand.",
        load=Constant(rate_per_second=2 * SITES * LANES),
        phases=Phases(warm_up_s=0, measure_s=SECONDS, cool_down_s=3),
        judgement=Judgement(deadline_ms=600_000, give_up_ms=600_000),
    )
    pipeline = Pipeline(name=RUN_ID, summary="-", engine="spark", mode="real-time")
    return RunRequest(
        run_id=RUN_ID, workload=workload, pipelines=(pipeline,), stages=stages, domain=TRAFFIC
    )


def contents(start_ms: int) -> Iterator[Content]:
    """All records, in the order in which a pipeline without delay would append them."""
    windows: list[Rows] = []
    for second in range(SECONDS):
        kinds = [
            _observations(second, kind, name, start_ms) for kind, name in enumerate((FLOW, SPEED))
        ]
        for spec, rows in zip(TRAFFIC.inputs, kinds, strict=True):
            yield Content(spec.topic, spec.record, rows)
            yield Content(output_of("ingest"), spec.record, rows)
            yield Content(output_of("parse"), "output_parse", rows)
        flow, speed = kinds
        yield Content(output_of("join"), "output_join", flow | {SPEED: speed[SPEED]})
        windows.append(_window(flow, speed))
        yield Content(output_of("tumbling"), "output_tumbling", windows[-1])
        if len(windows) > 2:
            yield Content(output_of("sliding"), "output_sliding", _changes(*windows[-3:]))


def encoded(content: Content) -> tuple[list[str], list[bytes]]:
    """Keys and values of the records."""
    schema_json, rows = CODEC.schema_json(content.record), content.rows
    schema = pyruhvro.avro_to_arrow_schema(schema_json)
    columns = [
        pa.array(rows[field.name]).cast(pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(rows[field.name]).cast(field.type)
        if field.name in rows
        else pa.nulls(len(rows["measurement_id"]), field.type)
        for field in schema
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    (datums,) = pyruhvro.serialize_record_batch(batch, schema_json, 1)
    header = CODEC.header(content.record)
    return rows["measurement_id"].to_pylist(), [header + datum for datum in datums.to_pylist()]


def _observations(second: int, kind: int, name: str, start_ms: int) -> Rows:
    """One second of one kind, with every lane of every site once."""
    count = SITES * LANES
    number = np.arange(count)
    sequence = (second * count + number) * 2 + kind
    sites = pa.array([f"RWS01_MONIBAS_{site:06d}" for site in range(SITES)])
    lanes = pa.array([f"lane{lane + 1}" for lane in range(LANES)])
    values = (sequence * 7) % 3_000
    return {
        "measurement_id": sites.take(pa.array(number // LANES)),
        "lane": lanes.take(pa.array(number % LANES)),
        "num_lanes": np.full(count, LANES),
        "latitude": 50.0 + number / count,
        "longitude": 4.0 + number / count,
        "observed_at": np.full(count, start_ms + 1000 * second),
        "period_s": np.full(count, 60),
        "accuracy_percent": np.full(count, 95),
        name: values if name == FLOW else values / 20.0,
        "sequence": sequence,
        "run_id": pa.array([RUN_ID] * count),
        "scheduled_at": (start_ms + 1000 * second) * 1000 + number,
    }


def _window(flow: Rows, speed: Rows) -> Rows:
    """The tumbling windows of one second: rows of a site are contiguous."""
    start_ms = flow["observed_at"][::LANES]
    return {
        "run_id": flow["run_id"][:SITES],
        "measurement_id": flow["measurement_id"].take(pa.array(np.arange(SITES) * LANES)),
        "window_start": start_ms,
        "window_end": start_ms + 1000,
        "lanes": np.full(SITES, LANES),
        "accumulated_flow_vehicles_per_hour": flow[FLOW].reshape(-1, LANES).sum(axis=1),
        "average_speed_km_per_hour": speed[SPEED].reshape(-1, LANES).sum(axis=1) / LANES,
    }


def _changes(oldest: Rows, older: Rows, newest: Rows) -> Rows:
    """The sliding windows that end with the newest of three tumbling windows."""

    def change(column: str, old: Rows) -> pa.Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (newest[column] - old[column]) / old[column]
        return pa.array(found, mask=old[column] == 0)

    flow, speed = "accumulated_flow_vehicles_per_hour", "average_speed_km_per_hour"
    return {
        "run_id": newest["run_id"],
        "measurement_id": newest["measurement_id"],
        "window_start": oldest["window_start"],
        "window_end": newest["window_end"],
        "flow_change_short": change(flow, older),
        "flow_change_long": change(flow, oldest),
        "speed_change_short": change(speed, older),
        "speed_change_long": change(speed, oldest),
    }


def _write(settings: ServiceSettings, content: Content) -> None:
    producer = idempotent_producer(
        settings, "bench", **{"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for key, value in zip(*encoded(content), strict=True):
        producer.produce(content.topic, value, key)
    assert producer.flush(60) == 0
