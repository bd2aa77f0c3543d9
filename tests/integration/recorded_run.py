"""The recorded events of a real run, and synthetic events of other situations.

`data/recorded_run.jsonl.xz` contains one event per line, `[topic, record]`: everything that the
services published during one run on a busy machine with two cores. `results.metrics` is from a
later run of the same pipelines, shifted to the time of this one, which had none yet. Host name,
paths, the drivers' settings and most details of Spark's progress are removed.
"""

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from schemas import catalogue

RECORDED: Final = Path(__file__).with_name("data") / "recorded_run.jsonl.xz"
Event = tuple[str, dict[str, Any]]
ATTRIBUTED: Final = {
    "disturbed": True,
    "late": {
        "seconds": 3,
        "of_seconds": 20,
        "by": {"broker": 2, "pipeline": 1},
        "disturbed_by": ["broker"],
        "said": "Disturbed: 3 of 20 seconds were late: 2 by the broker, 1 by the pipeline.",
    },
    "room": {
        "broker": {"cpu_cores": 0.5, "cpu_share": 0.25, "waiting_share": 0.1},
        "machine": {"cpu_cores": 1.5, "cpu_share": 0.75, "waiting_share": None},
    },
}
WARM_UP: Final = {
    "steady": False,
    "moving": ["spark-microbatch join: p50 fell by 200 ms in 8 s, from 900 to 700 ms"],
    "unknown": "",
    "until_steady": False,
    "seconds": 7,
}

JUDGED: Final = {
    "threshold": "*.p99_ms <= 900",
    "pipeline": "spark-microbatch",
    "stage": "join",
    "value": 880,
    "limit": 900,
    "passed": True,
}


def recorded() -> list[Event]:
    """(topic, record) of every event, ordered by time."""
    lines = lzma.decompress(RECORDED.read_bytes()).decode().splitlines()
    return [(topic, _as_of_now(record)) for topic, record in map(json.loads, lines)]


def _as_of_now(record: dict[str, Any]) -> dict[str, Any]:
    """The record with what that run did not have: in the request chained stages and thresholds, in
    the conclusion their results, changes and the causes of late seconds."""
    detail = json.loads(record.get("detail", "{}"))
    if record.get("event") == "run_requested":
        detail["topologies"] = {one["name"]: "chained" for one in detail["pipelines"]}
        detail["workload"]["thresholds"] = ["*.p99_ms <= 900"]
    elif record.get("kind") == "run":
        detail |= ATTRIBUTED | {"warm_up": WARM_UP, "thresholds": [JUDGED]}
    else:
        return record
    return record | {"detail": json.dumps(detail)}


def with_processes(events: Iterable[Event]) -> list[Event]:
    """The events with what that run did not have either: one process of each pipeline with its
    network, and at each of its samples tasks with a scheduler delay and an answer to a fetch."""
    result: list[Event] = []
    for topic, record in events:
        if not (record.get("cpu_seconds") and record["pipeline"]):
            result.append((topic, record))
            continue
        name = "python driver"
        used = {"cpu_seconds_by_process": {name: record["cpu_seconds"]}}
        network = {"received_bytes_by_process": {name: 1e6}, "sent_bytes_by_process": {name: 1e3}}
        result += [(topic, record | used | network), *_of_a_sample(record)]
    return result


def _of_a_sample(sample: dict[str, Any]) -> Iterator[Event]:
    head = {"run_id": sample["run_id"], "time": sample["time"], "pipeline": sample["pipeline"]}
    tasks = {"producer": "runner", "stage": "", "batch_id": -1, "input_rows": 0}
    delays = {"scheduler_delays_ms": [3, 40], "scheduler_delay_tasks": [9, 1]}
    yield catalogue.PIPELINE, head | tasks | delays
    place = {"topic": "traffic.flow", "partition": 0, "until": sample["time"], "first": False}
    handed = {"answers": 2, "records": 400, "bytes": 40_000, "last_offsets": [], "handed_ms": []}
    yield catalogue.FETCHES, head | {"producer": "proxy"} | place | handed


def run_of(events: Iterable[Event]) -> str:
    """Id of the recorded run."""
    return next(str(record["run_id"]) for _topic, record in events if record["run_id"])


def phase_ms(events: Iterable[Event], phase: str) -> tuple[int, int]:
    """Start and end of a phase of the load, epoch milliseconds."""
    for topic, record in events:
        if topic == catalogue.LIFECYCLE and record["phase"] == phase:
            detail = json.loads(record["detail"])
            return detail["start_ms"], detail["end_ms"]
    raise LookupError(phase)


def troubles(run_id: str, at_ms: int) -> Iterator[Event]:
    """Events that a good run does not have: a fault, a wrong output and a dead letter in its
    middle; and ten minutes earlier, a run in another environment, so that this one is a
    deployment."""
    head = {"run_id": run_id, "time": at_ms, "pipeline": "", "stage": "", "phase": ""}
    down = {"producer": "spark_pipeline", "event": "pipeline_down", "pipeline": "spark-microbatch"}
    yield catalogue.LIFECYCLE, head | down | {"detail": '{"reason": "Killed."}'}
    request = {"workload": {"name": "other"}, "environment": {"tidegauge": "1.0"}}
    asked = {"run_id": "other", "producer": "conductor", "event": "run_requested"}
    before = {"time": at_ms - 600_000, "detail": json.dumps(request)}
    yield catalogue.LIFECYCLE, head | asked | before
    judged = {"exact": 0, "wrong": 1, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}
    what = {"pipeline": "spark-microbatch", "stage": "parse", "phase": "measure"}
    sample = {"second": at_ms // 1000 * 1000, "samples": ['{"verdict": "wrong"}']}
    who = {"producer": "evaluator"}
    yield catalogue.VERDICTS, {"run_id": run_id, "time": at_ms} | who | what | sample | judged
    letter = {"run_id": "", "time": at_ms, "producer": "store", "topic": "results.latency"}
    why = {"partition": 0, "offset": 1, "reason": "Broken.", "key": None, "value": b"x"}
    yield catalogue.DEAD_LETTER, letter | why


def lost_frames(run_id: str, at_ms: int) -> Iterator[Event]:
    """What a gateway reports of a run over UDP: three frames did not arrive."""
    counts = {"sent": 1_003, "received": 1_000, "appended": 1_000, "lost": 3, "not_appended": 0}
    head = {"run_id": run_id, "time": at_ms, "pipeline": "", "stage": "", "phase": ""}
    detail = json.dumps({"transport": "udp"} | counts)
    who = {"producer": "gateway", "event": "way_in", "detail": detail}
    yield catalogue.LIFECYCLE, head | who


def conclusions(run_id: str, at_ms: int) -> Iterator[Event]:
    """Conclusions of a search and a suite: two steps, the rate found, and two change points, one of
    which is an improvement."""
    stages = {"join": {"highest_median_ms": 80.5}, "parse": {"highest_median_ms": None}}
    step = {"step_run_id": f"{run_id}-1", "measured_s": 15, "cpu_share": 0.5, "stages": stages}
    for number, sustained in enumerate((True, False), start=1):
        tried = {"step": number, "rate_per_second": 400.0 * number, "sustained": sustained}
        reasons = {"reasons": [] if sustained else ["The median rose."]}
        yield _concluded(run_id, at_ms, "search_step", step | tried | reasons)
    rate = {"rate_per_second": 400.0, "interval_per_second": [400.0, 800.0], "confirmed": True}
    about = {"pipeline": "spark-microbatch", "stages": ["join"], "policy": "steady-latency"}
    ended = {"verified": True, "verified_at_per_second": 360.0, "limit": ["The median rose."]}
    yield _concluded(run_id, at_ms, "sustainable_throughput", rate | about | ended)
    place = {"workload": "latency", "pipeline": "spark-microbatch", "stage": "join"}
    levels = {"metric": "p99_ms", "before": {"median": 900.0}, "after": {"median": 1200.0}}
    why = {"worse": True, "likely_causes": ["pyspark"]}
    yield _concluded(run_id, at_ms, "change_point", place | levels | why)
    better = {"metric": "middle_ms", "before": {"median": 600.0}, "after": {"median": 400.0}}
    why = {"worse": False, "likely_causes": []}
    yield _concluded(run_id, at_ms, "change_point", place | better | why)


def _concluded(run_id: str, at_ms: int, kind: str, detail: dict[str, Any]) -> Event:
    head = {"run_id": run_id, "time": at_ms, "producer": "conductor", "kind": kind}
    rest = {"valid": True, "invalid_reasons": [], "detail": json.dumps(detail)}
    return catalogue.CONCLUSIONS, head | rest


def an_input_of_another_load(at_ms: int) -> Event:
    """Throughput of the run in another environment, with which nothing is compared."""
    named = {"run_id": "other", "time": at_ms, "producer": "evaluator", "second": at_ms}
    place = {"topic": "traffic.flow", "pipeline": "", "stage": ""}
    return catalogue.THROUGHPUT, named | place | {"records": 1, "bytes": 100}
