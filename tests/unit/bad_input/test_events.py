"""Events with missing or wrong fields: rejected before any service acts on them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, protocol
from schemas.events import FigureColumns, LifecycleEvent, read_event
from services.conductor.orphaned_runs import recovered_run
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from services.console.progress import RunProgress
from tests.unit.bad_input.changed import JSON, changed
from tests.unit.bad_input.outcomes import count, fuzzed
from tests.unit.requests import RUN_ID, a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit

COUNTS = dict.fromkeys(protocol.VERDICTS, 1)
STAGE = {"highest_median_ms": 3.0, "rise_ms_per_s": 0.1, "longest_queue_records": None}
STEP = {"step": 1, "step_run_id": f"{RUN_ID}-step-01", "rate_per_second": 400.0}
JUDGED = {"long": False, "measured_s": 20, "sustained": True, "reasons": ["x"], "cpu_share": 0.5}
RESULT = {
    "policy": "steady-latency",
    "rate_per_second": 400.0,
    "interval_per_second": [400.0, None],
    "confirmed": True,
    "verified_at_per_second": 360.0,
    "verified": True,
}
LOAD = {
    "intended": 9,
    "acknowledged": 9,
    "failed": 0,
    "end_offsets": {"traffic.flow": [4], "traffic.speed": [5]},
}
SHARE = {"service": "evaluator", "instance_index": 0, "instance_count": 1, "machine_cores": 2}
EVENTS = {
    "ready": SHARE,
    "failed": {"reason": "no water"},
    "run_refused": {"reason": "no water"},
    "run_requested": json.loads(a_request().model_dump_json()),
    "load_finished": LOAD,
    "evaluating": {"largest_lag_ms": 3},
    "drained": {"verdicts": {"spark-realtime": {"join": COUNTS}}},
    "clock_offset": {"offset_ms": 0.5, "records": 8},
    "part_down": {"part": "generator", "reason": "no water"},
    "concluded": {"valid": True, "clean": True},
    "phase_started measure": {"start_ms": 1000, "end_ms": 2000},
    "phase_started search": STEP,
    "service_started": {"pid": 5},
}
CONCLUSIONS = {
    "run": {"clean": True},
    "search_step": {**STEP, **JUDGED, "stages": {"join": STAGE}},
    "sustainable_throughput": RESULT,
}
SOME_COUNTS = st.lists(st.integers(-5, 5), max_size=3)


@st.composite
def lifecycle_events(draw):
    """An event of the run, or of none, with an arbitrary detail."""
    name = draw(st.sampled_from(sorted(EVENTS)))
    event, _, phase = name.partition(" ")
    fields = {"run_id": draw(st.sampled_from((RUN_ID, ""))), "phase": phase}
    detail = draw(st.one_of(changed(EVENTS[name]), JSON.map(json.dumps)))
    return "results.lifecycle", a_lifecycle_event(event, detail, **fields)


@st.composite
def conclusions(draw):
    """A conclusion with an arbitrary detail."""
    kind = draw(st.sampled_from(sorted(CONCLUSIONS)))
    detail = draw(st.one_of(changed(CONCLUSIONS[kind]), JSON.map(json.dumps)))
    fields = {"kind": kind, "valid": True, "invalid_reasons": [], "detail": detail}
    return "results.conclusions", an_event(**fields)


@st.composite
def histograms(draw):
    """Counts with matching or different numbers of values."""
    fields = {"pipeline": "p", "stage": "join", "definition": "latest", "phase": "measure"}
    fields |= {"second": 0, "latencies_ms": draw(SOME_COUNTS), "counts": draw(SOME_COUNTS)}
    return "results.latency", an_event(**fields)


ANY_EVENT = st.one_of(lifecycle_events(), conclusions(), histograms())


@fuzzed
@given(st.lists(ANY_EVENT, max_size=6))
def test_nobody_stumbles_over_an_event_that_says_what_it_must(events) -> None:
    request = a_request()
    evidence, progress, heard = RunState(request), RunProgress(request), []
    refused = []
    for topic, event in events:
        try:
            read = read_event(topic, codec.encode(topic.replace(".", "_"), event))
        except codec.DecodeError as error:
            refused.append(str(error))
            count("events", "refused")
            continue
        count("events", "heard")
        progress.add(read)
        evidence.add(read)
        if not isinstance(read, FigureColumns):
            heard.append(read)
    assert not any("\n" in reason for reason in refused)
    progress.rows()
    progress.seconds_left(0)
    conclude(evidence)
    assert recovered_run(RUN_ID, heard).run_id == RUN_ID


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_ours_is_heard(name: str) -> None:
    event, _, phase = name.partition(" ")
    said = a_lifecycle_event(event, json.dumps(EVENTS[name]), phase=phase)
    read = read_event("results.lifecycle", codec.encode("results_lifecycle", said))
    assert isinstance(read, LifecycleEvent)
    assert read.record(said["producer"], said["time"]) | {"detail": ""} == said | {"detail": ""}
    assert read.detail == EVENTS[name] | read.detail
