"""Notices about the problems of watches: each once."""

from typing import Any

import pytest

from schemas import catalogue
from schemas.events import BusEvent, Conclusion, Killed, RunJudged, WatchTrouble
from services.conductor.notices.notice import HOUR_MS, MOST_TOLD, Looking, Notice, Told
from services.conductor.notices.telling import Outbox
from services.watcher.runs import WatchRuns, run_id_of
from services.watcher.troubles import Trouble, objection
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit

AT_MS = 494_252 * HOUR_MS
RUN = run_id_of(a_watch(), 494_252)
NEXT_RUN = run_id_of(a_watch(), 494_253)
TITLE = "watch w, 2026-05-20 20:00 UTC: INVALID"
DELETED = Trouble("topic_deleted", {"topic": "in"})
REFUSED = Trouble(
    "undecodable",
    {"topic": "in", "reason": "there is no schema 7", "records": 2, "partition": 3, "offset": 12},
)
DIED: dict[str, Any] = {"code": -9, "again_in_s": 2.0, "reason": ""}


def begun() -> BusEvent:
    return next(WatchRuns(a_watch(), {}).begin(494_252))


def trouble(one: Trouble, run_id: str = RUN, at_ms: int = AT_MS) -> WatchTrouble:
    """The event of a problem, as the watcher publishes it."""
    detail = {"invalid": objection(one)} | one.detail
    return WatchTrouble(run_id=run_id, time=at_ms, kind=one.kind, watch="w", **detail)


def concluded(*reasons: str, run_id: str = RUN) -> RunJudged:
    about: dict[str, Any] = {"clean": True, "verdicts": {}, "watch": {"inputs": 1}}
    return RunJudged(run_id=run_id, time=AT_MS, invalid_reasons=reasons, **about)


def told(*events: BusEvent, by: Looking | None = None) -> list[Notice]:
    """Notices of consecutive events."""
    looking, found = by or Looking(), []
    for place, event in enumerate(events):
        topic = catalogue.CONCLUSIONS if isinstance(event, Conclusion) else catalogue.LIFECYCLE
        notice = looking.at(event, f"{topic}/{place}")
        found += [] if notice is None else [notice]
    return found


def test_an_hour_that_becomes_invalid_is_told_at_once_and_not_again_when_it_is_concluded() -> None:
    why = objection(DELETED)
    (found,) = told(begun(), trouble(DELETED), trouble(DELETED), concluded(why))
    assert found == Notice(
        id="results.lifecycle/1",
        at_ms=AT_MS,
        kinds=("invalid",),
        title=TITLE,
        lines=("The topic in was deleted.",),
        run_id=RUN,
    )


def test_the_conclusion_of_an_hour_has_the_reasons_that_were_not_told() -> None:
    share = "The share of identities counted was reduced during the run."
    _, found = told(begun(), trouble(DELETED), concluded(objection(DELETED), share))
    assert (found.kinds, found.lines) == (("invalid",), (share,))
    _, later = told(trouble(DELETED), concluded(objection(DELETED), run_id=NEXT_RUN))
    assert (later.lines, later.run_id) == (("The topic in was deleted.",), NEXT_RUN)


def test_records_lost_in_several_partitions_are_told_once() -> None:
    lost = [
        Trouble("retention_overtook", {"topic": "in", "partition": one, "records": 5 + one})
        for one in range(3)
    ]
    (found,) = told(*map(trouble, lost), concluded(*map(objection, lost)))
    assert found.lines == ("5 records of in were deleted before they were read.",)


def test_what_was_told_is_known_after_a_restart(tmp_path: Any) -> None:
    outbox = Outbox(tmp_path, (), "stack")
    assert len(told(trouble(DELETED), trouble(REFUSED), by=Looking(outbox.told))) == 2
    outbox.write()
    again = Looking(Outbox(tmp_path, (), "stack").told)
    assert told(trouble(DELETED), trouble(REFUSED), concluded(objection(DELETED)), by=again) == []


@pytest.mark.parametrize(
    ("one", "title", "lines"),
    [
        (
            REFUSED,
            "watch w: records of in are not judged",
            ("there is no schema 7", "The first is in partition 3 at 12."),
        ),
        (
            Trouble("not_readable", {"topic": "in", "code": "X", "reason": "Not allowed"}),
            "watch w: in cannot be read",
            ("Not allowed",),
        ),
        (
            Trouble("not_readable", {"reason": "it has returned no end offsets for 30 s: …"}),
            "watch w: the cluster cannot be read",
            ("it has returned no end offsets for 30 s: …",),
        ),
        (
            Trouble("group_not_read", {"group": "shop", "reason": "Timed out"}),
            "watch w: the lag of the group shop is unknown",
            ("Timed out",),
        ),
        (
            Trouble("ended", DIED),
            "watch w: its process died",
            ("exit code -9", "It is restarted in 2 s."),
        ),
        (
            Trouble("ended", DIED | {"reason": "The registry does not answer."}),
            "watch w: its process died",
            ("The registry does not answer.", "It is restarted in 2 s."),
        ),
    ],
)
def test_other_problems_are_told_once_an_hour(
    one: Trouble, title: str, lines: tuple[str, ...]
) -> None:
    ends_ms = AT_MS + HOUR_MS
    times = (AT_MS, AT_MS + 30_000, ends_ms - 1, ends_ms)
    first, second = told(*(trouble(one, at_ms=at_ms) for at_ms in times))
    assert (first.kinds, first.title, first.lines) == (("watch_trouble",), title, lines)
    assert (first.at_ms, second.at_ms) == (AT_MS, ends_ms)


@pytest.mark.parametrize(
    "one",
    [
        Trouble("sampled", {"share": 0.5, "reason": "one in 2 at 900 records/s"}),
        Trouble("topic_appeared", {"topic": "in", "partition": 0}),
        Trouble("partition_added", {"topic": "in", "partition": 4}),
    ],
)
def test_what_is_no_problem_is_not_told(one: Trouble) -> None:
    assert told(trouble(one)) == []


def test_a_watch_that_ended_with_a_broker_that_was_killed_on_purpose_is_not_told() -> None:
    killed = Killed(run_id="run-1", time=AT_MS - 59_000, target="broker", pids=(7,))
    died = trouble(Trouble("ended", DIED))
    assert told(killed, died) == []
    assert len(told(killed.model_copy(update={"time": AT_MS - 60_000}), died)) == 1


def test_of_too_many_the_oldest_are_forgotten() -> None:
    found = Told()
    assert all(found.note(str(number)) for number in range(MOST_TOLD + 1))
    assert not found.note(str(1))
    assert found.note(str(0))
    assert len(found.saved()) == MOST_TOLD
