"""The topics that the benchmark of the evaluator reads: flow, speed, and the outputs of stage 1.

Eight seconds of event time, 25,000 lanes: 200,000 records in each input topic, 400,000 outputs.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyruhvro

from schemas import catalogue
from schemas.protocol import (
    Judgement,
    Load,
    PhasePlan,
    Phases,
    Pipeline,
    RunPlan,
    RunRequest,
    Workload,
)
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets, idempotent_producer
from services.runtime.settings import ServiceSettings
from services.runtime.topics import ensure_topics
from tests.traffic import CODEC, TRAFFIC, output_topics

RUN_ID = "bench"
SITES, LANES, SECONDS = 6_250, 4, 8
PER_TOPIC = SITES * LANES * SECONDS  # inputs of one kind; outputs are twice as many
OUTPUT = catalogue.output_topic("bench", "parse")
FLOW, SPEED = "flow_vehicles_per_hour", "speed_km_per_hour"


def fill(settings: ServiceSettings, folder: Path) -> Path:
    """Write the three topics; returns the file with the run's plan and phases."""
    ensure_topics(admin_client(settings, "bench"), output_topics("bench", ("parse",)))
    consumer = assigned_consumer(settings, "bench")
    topics = (*TRAFFIC.topics, OUTPUT)
    plan = RunPlan(
        request=_request(), start_offsets={topic: end_offsets(consumer, topic) for topic in topics}
    )
    consumer.close()
    start_ms = int(time.time()) * 1000
    for second in range(SECONDS):
        for kind, name in enumerate((FLOW, SPEED)):
            rows, spec = _rows(second, kind, name, start_ms), TRAFFIC.inputs[kind]
            _write(settings, spec.topic, spec.record, rows)
            _write(settings, OUTPUT, "output_parse", rows)
    path = folder / "plan.json"
    phases = PhasePlan(load_start_ms=start_ms, phases=plan.request.workload.phases)
    path.write_text(plan.model_dump_json() + "\n" + phases.model_dump_json())
    return path


def read_plan(path: Path) -> tuple[RunPlan, PhasePlan]:
    """What `fill` has written."""
    plan, phases = path.read_text().splitlines()
    return RunPlan.model_validate_json(plan), PhasePlan.model_validate_json(phases)


def _request() -> RunRequest:
    workload = Workload(
        name="bench",
        summary="Filled beforehand.",
        load=Load(rate_per_second=2 * SITES * LANES),
        phases=Phases(warm_up_s=0, measure_s=SECONDS, cool_down_s=3),
        judgement=Judgement(deadline_ms=600_000, give_up_ms=600_000),
    )
    pipeline = Pipeline(name="bench", summary="-", mode="real-time")
    return RunRequest(
        run_id=RUN_ID,
        workload=workload,
        pipelines=(pipeline,),
        stages=("parse",),
        domain=TRAFFIC,
    )


def _rows(second: int, kind: int, name: str, start_ms: int) -> dict[str, Any]:
    """Columns of one second of one kind, every lane of every site once."""
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


def _write(settings: ServiceSettings, topic: str, record: str, rows: dict[str, Any]) -> None:
    schema = pyruhvro.avro_to_arrow_schema(CODEC.schema_json(record))
    count = len(rows["sequence"])
    columns = [
        pa.array(rows[field.name]).cast(pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(rows[field.name]).cast(field.type)
        if field.name in rows
        else pa.nulls(count, field.type)
        for field in schema
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    (datums,) = pyruhvro.serialize_record_batch(batch, CODEC.schema_json(record), 1)
    header, keys = CODEC.header(record), rows["measurement_id"].to_pylist()
    producer = idempotent_producer(
        settings, "bench", **{"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for key, datum in zip(keys, datums.to_pylist(), strict=True):
        producer.produce(topic, header + datum, key)
    assert producer.flush(60) == 0
