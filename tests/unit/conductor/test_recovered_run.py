"""What a restarted conductor learns about the interrupted run, and what it publishes."""

import json
from typing import Any

import pytest

from schemas import catalogue, protocol
from schemas.commands import CancelRun, Command
from schemas.events import (
    BusEvent,
    Concluded,
    Conclusion,
    PhaseStarted,
    RateJudged,
    RunRequested,
    event_of,
)
from schemas.protocol import RunRequest
from schemas.search import Search
from services.conductor.orphaned_runs import (
    KILLED,
    MOST_LOST,
    RecoveredRun,
    conclude_orphan,
    of_run,
    recovered_run,
)
from services.conductor.search.bisection import Done, SoFar
from tests.unit.requests import RUN_ID, a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit

STEPS = [f"{RUN_ID}-step-{number:02}" for number in range(1, 9)]
CONCLUSION = {"kind": "run", "valid": True, "invalid_reasons": [], "detail": '{"clean": true}'}
Event = Command | BusEvent


def a_search() -> RunRequest:
    request = a_request()
    workload = request.workload.model_copy(update={"search": Search()})
    return request.model_copy(update={"workload": workload})


def told(event: str, detail: str = "{}", phase: str = "", at_ms: int = 0) -> Event:
    record = a_lifecycle_event(event, detail, phase=phase) | {"time": at_ms}
    return event_of(catalogue.LIFECYCLE, record)


def concluded(run_id: str, at_ms: int = 0, **fields: Any) -> Event:
    record = an_event(**CONCLUSION) | {"run_id": run_id, "time": at_ms} | fields
    return event_of(catalogue.CONCLUSIONS, record)


def about(step: str, rate: float) -> dict[str, Any]:
    return {
        "step": STEPS.index(step.removesuffix(protocol.WARMING)) + 1,
        "step_run_id": step,
        "rate_per_second": rate,
    }


def begun(step: str) -> Event:
    return told(PhaseStarted.name, json.dumps(about(step, 400)), phase="search")


def judged(step: str, rate: float, reasons: list[str], at_ms: int) -> Event:
    found = {"long": False, "measured_s": 20, "sustained": not reasons, "reasons": reasons}
    if reasons:
        found |= {"steady": False, "moving": ["p50"], "warm_up_s": 9}
    detail = about(step, rate) | found | {"cpu_share": None, "stages": {}}
    return concluded(RUN_ID, at_ms, kind="search_step", detail=json.dumps(detail))


REQUESTED = told(RunRequested.name, a_search().model_dump_json(), at_ms=1_000)
TWO_STEPS = [
    REQUESTED,
    *(begun(step) for step in STEPS[:3]),
    *(concluded(step) for step in STEPS[:2]),
    judged(STEPS[0], 400, [], 31_000),
    judged(STEPS[1], 800, ["too slow."], 61_000),
]
CARRIED_OUT = told(PhaseStarted.name, phase="prepare")
CANCEL = CancelRun(run_id=RUN_ID)
RESULT = RateJudged.model_construct(run_id=RUN_ID)


def test_a_run_whose_request_cannot_be_read_is_accounted_for_all_the_same() -> None:
    past = recovered_run(RUN_ID, [begun(STEPS[0])])
    assert not past.can_go_on
    assert past.open_steps == [STEPS[0]]


def test_a_search_goes_on_after_the_steps_that_were_judged() -> None:
    past = recovered_run(RUN_ID, TWO_STEPS)
    assert past.can_go_on
    assert past.open_steps == STEPS[2:3]
    assert past.so_far == SoFar(
        steps=(
            Done(400, long=False, number=1, measured_s=20),
            Done(
                800,
                False,
                ("too slow.",),
                number=2,
                steady=False,
                moving=("p50",),
                warm_up_s=9,
                measured_s=20,
            ),
        ),
        lost=(STEPS[2],),
        spent_s=60.0,
    )
    assert past.so_far.next_number == 4


def test_a_step_that_was_concluded_but_not_judged_is_lost_but_not_open() -> None:
    past = recovered_run(RUN_ID, [*TWO_STEPS, concluded(STEPS[2])])
    assert (past.open_steps, past.so_far.lost) == ([], (STEPS[2],))


def test_a_run_that_warmed_up_for_a_step_is_lost_only_if_the_step_did_not_begin() -> None:
    warming = f"{STEPS[2]}{protocol.WARMING}"
    before = [event for event in TWO_STEPS if event != begun(STEPS[2])]
    past = recovered_run(RUN_ID, [*before, begun(warming)])
    assert (past.open_steps, past.so_far.lost) == ([warming], (warming,))
    past = recovered_run(RUN_ID, [*before, begun(warming), begun(STEPS[2])])
    assert (past.open_steps, past.so_far.lost) == ([warming, STEPS[2]], (STEPS[2],))


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([*TWO_STEPS, CARRIED_OUT], "the run at the rate found has published"),
        ([*TWO_STEPS, CANCEL], "nobody wants it"),
        ([*TWO_STEPS, RESULT], "its result is told"),
        ([*TWO_STEPS, concluded(RUN_ID)], "it is concluded"),
        ([*TWO_STEPS, *(begun(step) for step in STEPS[3:])], "it ends every conductor"),
        ([told(RunRequested.name, a_request().model_dump_json())], "it is no search"),
        ([], "it was not announced"),
    ],
)
def test_what_cannot_go_on(events: list[Event], why: str) -> None:
    assert len(STEPS[2:]) > MOST_LOST
    assert not recovered_run(RUN_ID, events).can_go_on, why


class Told:
    """Published conclusions by run, and commands."""

    def __init__(self) -> None:
        self.conclusions: list[tuple[str, str, tuple[str, ...]]] = []
        self.details: dict[str, Any] = {}
        self.announced: list[str] = []
        self.stopped: list[str] = []

    def publish(self, event: Any) -> None:
        if isinstance(event, Conclusion):
            self.conclusions.append((event.kind, event.run_id, event.invalid_reasons))
            self.details[event.kind] = event.detail
        else:
            self.announced.append(event.run_id)

    def send(self, command: Command) -> None:
        self.stopped.append(command.run_id)


def accounted(past: RecoveredRun) -> Told:
    told = Told()
    conclude_orphan(past, told)  # type: ignore[arg-type]
    return told


def test_a_search_that_cannot_go_on_says_what_it_had_found() -> None:
    told = accounted(recovered_run(RUN_ID, [*TWO_STEPS, CANCEL]))
    assert told.conclusions == [
        ("run", STEPS[2], (KILLED,)),
        ("sustainable_throughput", RUN_ID, (KILLED,)),
        ("run", RUN_ID, (KILLED,)),
    ]
    assert told.stopped == told.announced == [STEPS[2], RUN_ID]
    result = told.details["sustainable_throughput"]
    assert (result["rate_per_second"], result["verified"]) == (pytest.approx(388), False)
    assert told.details["run"]["search"] == result


FLOOR = f"{RUN_ID}-floor"
FLOOR_REQUESTED = RunRequested(run_id=FLOOR, request=a_request())


def test_the_floor_that_was_measured_then_is_concluded_too() -> None:
    run = told(RunRequested.name, a_request().model_dump_json())
    ended = accounted(recovered_run(RUN_ID, [run, FLOOR_REQUESTED]))
    assert ended.conclusions == [("run", FLOOR, (KILLED,)), ("run", RUN_ID, (KILLED,))]
    assert ended.stopped == [FLOOR, RUN_ID]
    past = recovered_run(RUN_ID, [run, FLOOR_REQUESTED, concluded(FLOOR)])
    assert past.open_steps == []
    assert past.conclusion is None, "that is the floor's"


def test_a_search_whose_floor_was_measured_then_goes_on_without_it() -> None:
    past = recovered_run(RUN_ID, [REQUESTED, FLOOR_REQUESTED])
    assert (past.can_go_on, past.open_steps, past.so_far) == (True, [FLOOR], SoFar())


def test_of_a_run_are_its_floor_and_the_steps_of_its_search() -> None:
    ids = (RUN_ID, FLOOR, STEPS[0], f"{RUN_ID}-probe", "other", "other-floor", "other-step-01")
    assert [one for one in ids if of_run(RUN_ID, one)] == [RUN_ID, FLOOR, STEPS[0]]


def test_a_run_that_is_concluded_is_not_concluded_again() -> None:
    told = accounted(recovered_run(RUN_ID, [concluded(RUN_ID)]))
    assert (told.conclusions, told.stopped) == ([], [])


def test_a_conclusion_that_nobody_could_hear_of_is_announced() -> None:
    announced = recovered_run(RUN_ID, [concluded(RUN_ID), told_concluded()])
    assert accounted(announced).announced == []
    assert accounted(recovered_run(RUN_ID, [concluded(RUN_ID)])).announced == [RUN_ID]


def told_concluded() -> Event:
    return Concluded(run_id=RUN_ID, valid=True, clean=True)
