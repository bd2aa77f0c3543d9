"""Requests and events for several unit tests, with literal values."""

from typing import Any

from schemas.load import Constant
from schemas.protocol import Judgement, Phases, RunRequest, Validity, Workload
from services.definitions.pipelines import checked_pipeline
from tests.traffic import STAGES, TRAFFIC

RUN_ID = "20260101-000000-abcd"


def a_request(*pipelines: str) -> RunRequest:
    """A run of all stages at 400/s: 10 s warm-up, 30 s measured, 5 s cool-down."""
    return RunRequest(
        run_id=RUN_ID,
        workload=Workload(
            name="latency",
            summary="a test",
            load=Constant(rate_per_second=400),
            phases=Phases(warm_up_s=10, measure_s=30, cool_down_s=5),
            judgement=Judgement(deadline_ms=10_000, give_up_ms=20_000),
            validity=Validity(max_send_delay_p99_ms=50, max_failed_records=0),
        ),
        pipelines=tuple(
            checked_pipeline({"name": name, "summary": "x", "engine": "spark", "mode": "real-time"})
            for name in pipelines or ("spark-realtime",)
        ),
        stages=STAGES,
        domain=TRAFFIC,
    )


def an_event(**fields: Any) -> dict[str, Any]:
    """A results event of the run, as it comes from the bus."""
    return {"run_id": RUN_ID, "time": 0, "producer": "someone", **fields}


def a_lifecycle_event(event: str, detail: str = "{}", **fields: Any) -> dict[str, Any]:
    """A lifecycle event of the run."""
    empty = {"pipeline": "", "stage": "", "phase": ""}
    return an_event(event=event, detail=detail, **{**empty, **fields})
