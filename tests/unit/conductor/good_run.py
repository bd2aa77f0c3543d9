"""What the bus says of a good run, and the pieces of it."""

from schemas import protocol
from schemas.protocol import Drained, LoadFinished
from services.conductor.evidence import Evidence
from tests.unit.requests import a_lifecycle_event, a_request, an_event

EXACT = {"exact": 100, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}
STAGES = ("ingest", "parse", "join", "tumbling", "sliding")


def lifecycle(evidence: Evidence, event: str, **fields: str) -> None:
    evidence.add("results.lifecycle", a_lifecycle_event(event, **fields))


def finish_load(evidence: Evidence, intended: int = 500, failed: int = 0, lost: int = 0) -> None:
    finished = LoadFinished(
        intended=intended,
        acknowledged=intended - failed - lost,
        failed=failed,
        end_offsets={"traffic.flow": (250,), "traffic.speed": (250,)},
    )
    lifecycle(evidence, protocol.LOAD_FINISHED, detail=finished.model_dump_json())


def drain(evidence: Evidence, **changes: int) -> None:
    stages = {stage: dict(EXACT) for stage in STAGES}
    stages["join"].update(changes)
    drained = Drained(verdicts={"spark-realtime": stages})
    lifecycle(evidence, protocol.DRAINED, detail=drained.model_dump_json())


def measure(evidence: Evidence, *stages: str, latency_ms: int = 4) -> None:
    for stage in stages:
        event = an_event(
            pipeline="spark-realtime",
            stage=stage,
            definition="latest",
            phase="measure",
            second=0,
            latencies_ms=[latency_ms],
            counts=[100],
        )
        evidence.add("results.latency", event)


def send_delays(evidence: Evidence, histogram: dict[int, int], phase: str = "measure") -> None:
    event = an_event(phase=phase, send_delays_us=list(histogram), counts=list(histogram.values()))
    evidence.add("results.generator", event)


def a_good_run() -> Evidence:
    evidence = Evidence(a_request())
    finish_load(evidence)
    send_delays(evidence, {100: 400, 300: 100})
    measure(evidence, *STAGES)
    drain(evidence)
    return evidence
