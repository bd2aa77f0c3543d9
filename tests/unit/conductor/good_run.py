"""The bus events of a good run, and their parts."""

from schemas.events import Drained, FigureColumns, LoadFinished, event_of
from services.conductor.run_state import RunState
from tests.unit.requests import a_lifecycle_event, a_request, an_event

EXACT = {"exact": 100, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}
STAGES = ("ingest", "parse", "join", "tumbling", "sliding")


def lifecycle(state: RunState, event: str, **fields: str) -> None:
    state.add(event_of("results.lifecycle", a_lifecycle_event(event, **fields)))


def finish_load(state: RunState, intended: int = 500, failed: int = 0, lost: int = 0) -> None:
    finished = LoadFinished(
        intended=intended,
        acknowledged=intended - failed - lost,
        failed=failed,
        end_offsets={"traffic.flow": (250,), "traffic.speed": (250,)},
    )
    lifecycle(state, LoadFinished.name, detail=finished.model_dump_json())


def drain(state: RunState, **changes: int) -> None:
    stages = {stage: dict(EXACT) for stage in STAGES}
    stages["join"].update(changes)
    drained = Drained(verdicts={"spark-realtime": stages})
    lifecycle(state, Drained.name, detail=drained.model_dump_json())


def measure(state: RunState, *stages: str, latency_ms: int = 4) -> None:
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
        state.add(FigureColumns("results.latency", event))


def send_delays(state: RunState, histogram: dict[int, int], phase: str = "measure") -> None:
    counts = list(histogram.values())
    event = an_event(
        phase=phase,
        second=0,
        acknowledged=sum(counts),
        send_delays_us=list(histogram),
        counts=counts,
    )
    state.add(FigureColumns("results.generator", event))


def a_good_run() -> RunState:
    state = RunState(a_request())
    finish_load(state)
    send_delays(state, {100: 400, 300: 100})
    measure(state, *STAGES)
    drain(state)
    return state
