"""Events: what is on the bus, and which of them a reader gets."""

import json

import pytest

from schemas import catalogue, codec
from schemas.events import (
    Conclusion,
    Failed,
    LifecycleEvent,
    PhaseStarted,
    PipelineReady,
    RateJudged,
    Ready,
    RunJudged,
    SearchStepStarted,
    StartAgain,
    WatchTrouble,
    event_of,
    read_event,
)

pytestmark = pytest.mark.unit

HEAD = {"run_id": "r1", "time": 5, "producer": "tests", "pipeline": "", "stage": "", "phase": ""}


def on_the_bus(event):
    """The event that is read after this one was published."""
    record = event.record("tests", 5)
    value = codec.encode(catalogue.record_of(event.TOPIC), record)
    return record, read_event(event.TOPIC, value)


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            StartAgain(run_id="r1", pipeline="p", reason="busy", attempt=2),
            {"event": "start_again", "pipeline": "p", "detail": {"reason": "busy", "try": 2}},
        ),
        (
            PhaseStarted(run_id="r1", phase="warm_up", start_ms=1000),
            {"event": "phase_started", "phase": "warm_up", "detail": {"start_ms": 1000}},
        ),
        (
            Ready(run_id="r1", machine_cores=2),
            {"event": "ready", "detail": {"machine_cores": 2.0}},
        ),
        (
            PipelineReady(run_id="r1", pipeline="p", about_engine={"service": 7}),
            {"event": "ready", "pipeline": "p", "detail": {"service": 7}},
        ),
        (
            WatchTrouble(run_id="r1", kind="sampled", watch="w", invalid="", share=0.5),
            {
                "event": "watch_trouble",
                "detail": {"kind": "sampled", "watch": "w", "invalid": "", "share": 0.5},
            },
        ),
        (
            SearchStepStarted(
                run_id="r1", phase="search", step=1, step_run_id="s", rate_per_second=4
            ),
            {
                "event": "phase_started",
                "phase": "search",
                "detail": {"step": 1, "step_run_id": "s", "rate_per_second": 4.0},
            },
        ),
    ],
)
def test_a_lifecycle_event_is_read_as_it_was_published(event, fields):
    record, read = on_the_bus(event)
    detail = fields.pop("detail")
    assert record == HEAD | fields | {"detail": record["detail"]}
    assert json.loads(record["detail"]) == detail
    assert type(read) is type(event)
    assert read == event.model_copy(update={"time": 5, "producer": "tests"})


def test_a_conclusion_is_valid_if_nothing_objects_and_keeps_further_figures():
    record, read = on_the_bus(RunJudged(run_id="r1", clean=True, late={"seconds": 3}))
    assert (record["kind"], record["valid"], record["invalid_reasons"]) == ("run", True, [])
    assert read.detail == {"clean": True, "late": {"seconds": 3}}
    record, read = on_the_bus(RunJudged(run_id="r1", clean=False, invalid_reasons=("late.",)))
    assert (record["valid"], read.invalid_reasons) == (False, ("late.",))


def test_what_only_users_know_is_left_out_and_what_nobody_knows_is_ignored():
    failed = HEAD | {"event": "failed", "detail": '{"reason": "x", "more": 1}'}
    assert event_of(catalogue.LIFECYCLE, failed) == Failed(
        run_id="r1", time=5, producer="tests", reason="x"
    )
    unknown = event_of(catalogue.LIFECYCLE, HEAD | {"event": "new", "detail": "{}"})
    assert type(unknown) is LifecycleEvent
    record = {"run_id": "", "time": 1, "producer": "", "invalid_reasons": [], "detail": "{}"}
    assert type(event_of(catalogue.CONCLUSIONS, record | {"kind": "new"})) is Conclusion


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"event": "failed", "detail": "{}"}, r"^detail\.reason: It is missing$"),
        ({"event": "evaluating", "detail": '{"largest_lag_ms": "9"}'}, "must be a whole number$"),
        ({"event": "phase_started", "detail": "{}", "phase": "lunch"}, "'lunch' is not a phase"),
    ],
)
def test_an_event_that_lacks_what_readers_rely_on_is_refused(fields, reason):
    with pytest.raises(codec.DecodeError, match=reason):
        event_of(catalogue.LIFECYCLE, HEAD | fields)


def test_a_rate_that_was_not_verified_anywhere_is_refused():
    with pytest.raises(ValueError, match="a rate needs verified_at_per_second"):
        RateJudged(
            policy="p",
            rate_per_second=1,
            interval_per_second=(1, None),
            confirmed=False,
            verified_at_per_second=None,
            verified=False,
        )
