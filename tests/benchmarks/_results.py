"""A plausible history of runs, as events of the bus.

Every number is derived from the seed, so that two stores get the same history.
"""

import json
from collections.abc import Iterator
from typing import Any

from schemas import catalogue
from schemas.protocol import OF_EVERY_STAGE
from tests.traffic import INPUTS, STAGES

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PIPELINES = ("spark-realtime", "spark-microbatch")
SERIES = [(p, s, d) for p in PIPELINES for s in STAGES for d in OF_EVERY_STAGE]
VALUES = 100  # distinct milliseconds per second and series
Event = tuple[str, dict[str, Any]]


def run_id_of(number: int) -> str:
    """Name of the n-th run."""
    return f"2026-{number:06d}"


def run_events(number: int, seconds: int, start_ms: int) -> Iterator[Event]:
    """(topic, record) of one run without its latencies; it consists of the measure phase only."""
    run_id, end_ms = run_id_of(number), start_ms + 1000 * seconds
    yield from _lifecycle(run_id, start_ms, end_ms)
    for second in range(start_ms, end_ms, 1000):
        head = {"run_id": run_id, "time": second + 900, "phase": "measure", "second": second}
        yield from _load(head)
        for pipeline in PIPELINES:
            yield from _outputs(head | {"pipeline": pipeline}, offending=second == start_ms)
        yield from _use(run_id, second)
    conclusion = {"kind": "run", "valid": True, "invalid_reasons": [], "detail": '{"clean": true}'}
    who = {"run_id": run_id, "time": end_ms, "producer": "conductor"}
    yield catalogue.CONCLUSIONS, who | conclusion


def latency_events(number: int, seconds: int, start_ms: int) -> Iterator[Event]:
    """(topic, record) of the latencies of one run, three values per second and series."""
    for second in range(start_ms, start_ms + 1000 * seconds, 1000):
        for place, (pipeline, stage, definition) in enumerate(SERIES):
            yield (
                catalogue.LATENCY,
                {
                    "run_id": run_id_of(number),
                    "time": second + 900,
                    "producer": "evaluator",
                    "pipeline": pipeline,
                    "stage": stage,
                    "definition": definition,
                    "phase": "measure",
                    "second": second,
                    "latencies_ms": [10 * place, 10 * place + 1, 10 * place + 200],
                    "counts": [300, 90, 10],
                },
            )


def _lifecycle(run_id: str, start_ms: int, end_ms: int) -> Iterator[Event]:
    request = {
        "run_id": run_id,
        "workload": {"name": "latency", "phases": {"measure_s": (end_ms - start_ms) // 1000}},
        "pipelines": [{"name": name, "stages": STAGES} for name in PIPELINES],
        "topologies": dict.fromkeys(PIPELINES, "chained"),
        "stages": STAGES,
        "environment": {"host": "h", "cores": 2, "java": "21", "packages": {"pyspark": "4.3.0"}},
    }
    bounds = {"start_ms": start_ms, "end_ms": end_ms}
    for event, phase, at_ms, detail in (
        ("run_requested", "", start_ms - 9000, request),
        ("phase_started", "warm_up", start_ms - 5000, bounds),
        ("phase_started", "measure", start_ms, bounds),
        ("phase_started", "drain", end_ms, {}),
        ("concluded", "", end_ms + 1000, {"valid": True, "invalid_reasons": []}),
    ):
        head = {"run_id": run_id, "time": at_ms, "producer": "conductor", "event": event}
        rest = {"pipeline": "", "stage": "", "phase": phase, "detail": json.dumps(detail)}
        yield catalogue.LIFECYCLE, head | rest


def _load(head: dict[str, Any]) -> Iterator[Event]:
    counts = {"intended": 400, "sent": 400, "acknowledged": 400, "failed": 0}
    delays = {"send_delays_us": [100, 300, 900], "counts": [390, 9, 1]}
    yield catalogue.GENERATOR, head | {"producer": "generator"} | counts | delays
    for topic in INPUTS:
        yield catalogue.THROUGHPUT, _counted(head, topic, "", "", 200)


def _outputs(head: dict[str, Any], offending: bool) -> Iterator[Event]:
    judged = {"exact": 400, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}
    for stage in STAGES:
        pipeline = head["pipeline"]
        topic = catalogue.output_topic(pipeline, stage)
        yield catalogue.THROUGHPUT, _counted(head, topic, pipeline, stage, 400)
        found = head | {"producer": "evaluator", "stage": stage, "samples": []} | judged
        wrong = {"exact": 399, "wrong": 1, "samples": ['{"verdict": "wrong"}']} if offending else {}
        yield catalogue.VERDICTS, found | wrong
        named = {name: head[name] for name in ("run_id", "time", "pipeline")}
        progress = {"batch_id": 1, "input_rows": 400, "batch_duration_ms": 100, "state_rows": 50}
        behind = {"metrics": {"maxOffsetsBehindLatest": "12", "avgOffsetsBehindLatest": "7.5"}}
        detail = json.dumps({"sources": [behind, {"description": "no such metrics"}]})
        report = {"watermark": head["second"] - 2000, "lag_records": 30, "detail": detail}
        who = {"producer": "runner", "stage": stage}
        yield catalogue.PIPELINE, named | who | progress | report


def _counted(
    head: dict[str, Any], topic: str, pipeline: str, stage: str, records: int
) -> dict[str, Any]:
    named = {name: head[name] for name in ("run_id", "time", "second")}
    where = {"producer": "evaluator", "topic": topic, "pipeline": pipeline, "stage": stage}
    return named | where | {"records": records, "bytes": 100 * records}


def _use(run_id: str, second: int) -> Iterator[Event]:
    used = {"interval_s": 1.0, "memory_bytes": 10**8, "processes": 1, "threads": 9}
    head = {"run_id": run_id, "time": second + 900, "producer": "collector"} | used
    for service in ("machine", "kafka", "store", "evaluator", "generator", "collector"):
        yield catalogue.RESOURCES, head | {"service": service, "pipeline": "", "cpu_seconds": 0.1}
    for name in PIPELINES:
        mine = {"service": "runner", "pipeline": name, "cpu_seconds": 0.5}
        yield catalogue.RESOURCES, head | mine
