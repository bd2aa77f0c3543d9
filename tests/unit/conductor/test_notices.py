"""Notices: content and format."""

from typing import Any

import pytest

from schemas import catalogue
from schemas.events import (
    BusEvent,
    ChangePointFound,
    Conclusion,
    Killed,
    PartDown,
    RunJudged,
    RunRequested,
)
from schemas.pipeline import Pipeline
from schemas.workload import Kill
from services.conductor.notices.notice import Looking, Notice, Told, end_of_silence, silence
from services.conductor.notices.posting import plain, slack, teams
from services.watcher.runs import WatchRuns, run_id_of
from tests.unit.requests import a_request
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit

AT_MS = 1_700_000_000_000
EXACT = {"exact": 9, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}


def conclusion(
    run_id: str = "run-1", reasons: tuple[str, ...] = (), clean: bool = True, **detail: Any
) -> RunJudged:
    return RunJudged(run_id=run_id, time=AT_MS, invalid_reasons=reasons, clean=clean, **detail)


def a_pipeline(name: str, **settings: Any) -> Pipeline:
    return Pipeline(name=name, summary="-", engine="spark", **settings)


def requested(name: str, *pipelines: Pipeline, kills: tuple[Kill, ...] = ()) -> RunRequested:
    request = a_request()
    workload = request.workload.model_copy(update={"name": name, "kills": kills})
    request = request.model_copy(update={"workload": workload, "pipelines": pipelines})
    return RunRequested(run_id="run-1", request=request)


def told(event: BusEvent, *before: BusEvent) -> Notice | None:
    looking = Looking()
    for one in before:
        assert looking.at(one, "results.lifecycle/1") is None
    topic = catalogue.CONCLUSIONS if isinstance(event, Conclusion) else catalogue.LIFECYCLE
    return looking.at(event, f"{topic}/7")


def test_a_good_run_is_not_told() -> None:
    assert told(conclusion(clean=True, verdicts={"p": {"join": EXACT}}, thresholds=[])) is None


def test_one_notice_says_all_that_is_wrong_with_a_run() -> None:
    row = {"threshold": "join.p99_ms <= 50", "pipeline": "p", "stage": "join", "value": 63,
           "passed": False}  # fmt: skip
    verdicts = {"p": {"parse": EXACT, "join": EXACT | {"late": 2, "missing": 1}}}
    found = told(
        conclusion(reasons=("The host gave 9% to others.",), verdicts=verdicts, thresholds=[row]),
        requested("latency", a_pipeline("p")),
    )
    assert found == Notice(
        id="results.conclusions/7",
        at_ms=AT_MS,
        kinds=("threshold", "invalid", "unclean"),
        title="latency on p: a threshold failed and INVALID and outputs were not exact",
        lines=(
            "failed: join.p99_ms <= 50; p join has 63",
            "The host gave 9% to others.",
            "p join: 1 missing, 2 late",
        ),
        run_id="run-1",
    )


@pytest.mark.parametrize(
    ("kills", "settings", "lines"),
    [
        ([], {"drop_one_in": 0}, ("p join: 1 missing", "q join: 1 missing")),
        ([], {"drop_one_in": 100}, ("q join: 1 missing",)),
        ([Kill(target="driver", at_s=15)], {}, None),
    ],
)
def test_faults_on_purpose_are_not_told(
    kills: list[Any], settings: dict[str, int], lines: tuple[str, ...] | None
) -> None:
    verdicts = {name: {"join": EXACT | {"missing": 1}} for name in ("p", "q")}
    asked = requested("failure", a_pipeline("p", **settings), a_pipeline("q"), kills=tuple(kills))
    found = told(conclusion(verdicts=verdicts), asked)
    assert (found and found.lines) == lines


@pytest.mark.parametrize(
    "reason",
    [
        "The run was interrupted.",
        "The run of the suite gave way to run latency-2.",
        "The conductor was stopped.",
    ],
)
def test_a_run_that_somebody_ended_is_not_told(reason: str) -> None:
    assert told(conclusion(reasons=(reason,))) is None


def test_a_run_that_a_threshold_ended_is_told() -> None:
    reason = "The run was ended by a threshold that failed: join.p99_ms <= 50 abort; p join has 63."
    found = told(conclusion(reasons=(reason,), clean=True, verdicts={}))
    assert found is not None
    assert (found.kinds, found.lines) == (("invalid",), (reason,))


def test_steps_of_a_search_and_floors_are_not_told() -> None:
    bad = {"p": {"join": EXACT | {"missing": 5}}}
    assert told(conclusion("run-1-floor", verdicts=bad)) is None
    assert told(conclusion("search-1-step-3", verdicts=bad)) is None
    assert told(conclusion("search-1-step-04-warm", verdicts=bad)) is None
    assert told(conclusion("search-1", verdicts=bad)) is not None
    hour_of_watch = "watch-my-step-2-20260520-200000"
    assert told(conclusion(hour_of_watch, verdicts=bad)) is not None


def of_watch(thresholds: tuple[tuple[str, bool], ...], **verdicts: int) -> RunJudged:
    """The conclusion of an hour of a watch."""
    rows = [
        {"threshold": f"output.{line}", "pipeline": "w", "stage": "output", "value": 3,
         "passed": passed} for line, passed in thresholds
    ]  # fmt: skip
    counts = {"w": {"output": EXACT | verdicts}}
    return conclusion(RUN, watch={"inputs": 9}, verdicts=counts, thresholds=rows)


RUN = run_id_of(a_watch(), 494_252)
BEGUN = next(WatchRuns(a_watch(), {}).begin(494_252))


def test_an_hour_of_a_watch_that_fails_a_threshold_is_told() -> None:
    found = told(of_watch((("missing <= 0", False), ("p99_ms <= 500", True)), missing=3), BEGUN)
    assert found is not None
    assert (found.kinds, found.run_id) == (("threshold",), RUN)
    assert found.title == "watch w, 2026-05-20 20:00 UTC: a threshold failed"
    assert found.lines == ("failed: output.missing <= 0; w output has 3",)


@pytest.mark.parametrize(
    ("thresholds", "lines"),
    [
        ((), ("w output: 3 missing, 1 late",)),
        ((("p99_ms <= 500", True),), ("w output: 3 missing, 1 late",)),
        ((("missing <= 5", True),), ("w output: 1 late",)),
        ((("missing <= 5", True), ("late <= 1", True)), None),
        ((("not_exact <= 5", True),), None),
    ],
)
def test_verdicts_that_a_watch_limits_are_left_to_its_thresholds(
    thresholds: tuple[tuple[str, bool], ...], lines: tuple[str, ...] | None
) -> None:
    found = told(of_watch(thresholds, missing=3, late=1))
    assert (found and found.lines) == lines


def a_change(**fields: Any) -> ChangePointFound:
    detail: dict[str, Any] = {
        "workload": "latency at 400/s",
        "pipeline": "p",
        "stage": "join",
        "metric": "middle_ms",
        "first_run_after": "run-9",
        "before": {"median": 100.0, "runs": 8},
        "after": {"median": 120.0, "runs": 4},
        "change": 0.2,
        "worse": True,
        "likely_causes": ["java: 21 → 25"],
    }
    return ChangePointFound(run_id="run-9", time=AT_MS, **(detail | fields))


def test_a_change_point_that_is_published_twice_is_told_once_also_after_a_restart() -> None:
    memory = Told()
    looking = Looking(memory)

    def is_told(**fields: Any) -> bool:
        return looking.at(a_change(**fields), "x/1") is not None

    assert is_told()
    assert not is_told(p_value=0.01)
    others = dict.fromkeys(("workload", "pipeline", "stage", "first_run_after"), "other")
    assert all(is_told(**{name: value}) for name, value in (others | {"metric": "p99_ms"}).items())
    looking = Looking(Told(memory.saved()))
    assert not is_told()


def test_a_change_point_is_told_with_what_else_changed() -> None:
    found = told(a_change())
    assert found is not None
    assert (found.kinds, found.run_id) == (("change_point",), "run-9")
    assert found.title == "join of p, latency at 400/s got worse"
    assert found.lines == (
        "join of p, latency at 400/s: the typical latency (mean of the middle half) rose from 100 "
        "to 120 ms (+20%) with run run-9 (8 runs before, 4 since); likely causes:",
        "java: 21 → 25",
    )


def test_a_dead_part_is_told_unless_it_was_killed_on_purpose() -> None:
    down = PartDown(time=AT_MS, part="kafka", reason="it was killed by SIGKILL", restart=1)
    found = told(down)
    assert found is not None
    assert (found.title, found.lines) == (
        "kafka died",
        ("it was killed by SIGKILL", "It is restarted."),
    )
    killed = Killed(run_id="run-1", time=AT_MS - 59_000, target="broker", pids=(7,))
    assert told(down, killed) is None
    assert told(down, killed.model_copy(update={"time": AT_MS - 60_000})) is not None


def test_the_last_death_says_that_the_stack_ends() -> None:
    found = told(PartDown(part="store", reason="exit code 1", restart=0))
    assert found is not None
    assert found.lines == ("exit code 1", "The stack stops.")


def test_silence_and_its_end_have_names_of_their_own() -> None:
    began, ended = silence(AT_MS, 30, AT_MS + 1_800_000), end_of_silence(AT_MS, AT_MS + 2_400_000)
    assert (began.title, ended.title) == (
        "No results for 30 minutes",
        "Results have resumed after 40 minutes",
    )
    assert (began.id, ended.id) == (f"no-results/{AT_MS}", f"results-again/{AT_MS}")


def test_a_receiver_may_want_only_some_kinds() -> None:
    one = Notice(id="1", at_ms=0, kinds=("threshold", "invalid"), title="t")
    assert one.concerns(())
    assert one.concerns(("invalid", "part_down"))
    assert not one.concerns(("part_down",))


NOTICE = Notice(
    id="results.conclusions/7",
    at_ms=AT_MS,
    kinds=("threshold",),
    title="a < b & c",
    lines=("x > 1",),
    run_id="run-1",
)


def test_the_plain_shape_has_every_field() -> None:
    assert plain(NOTICE) == {
        "id": "results.conclusions/7",
        "time": "2023-11-14T22:13:20.000+00:00",
        "kinds": ["threshold"],
        "title": "a < b & c",
        "lines": ["x > 1"],
        "run_id": "run-1",
    }


def test_slack_gets_one_text_in_which_no_link_can_be_hidden() -> None:
    assert slack(NOTICE) == {"text": "*a &lt; b &amp; c*\n• x &gt; 1"}


def test_teams_gets_an_adaptive_card() -> None:
    body = teams(NOTICE)
    (attachment,) = body["attachments"]
    assert (body["type"], attachment["contentType"]) == (
        "message",
        "application/vnd.microsoft.card.adaptive",
    )
    assert attachment["content"]["version"] == "1.4"
    runs = [block["inlines"][0] for block in attachment["content"]["body"]]
    assert runs == [
        {"type": "TextRun", "text": "a < b & c", "weight": "Bolder", "size": "Medium"},
        {"type": "TextRun", "text": "x > 1"},
    ]
