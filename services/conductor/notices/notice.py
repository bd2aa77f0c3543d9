"""Turns events of the results bus into notifications. Pure.

Looking(...).at(event, place)     # a Notice, or None
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from analysis.changes.words import change_sentence
from analysis.thresholds import left_to_thresholds, not_exact, sentence
from schemas import catalogue, protocol
from schemas.events import (
    BusEvent,
    ChangePointFound,
    Killed,
    PartDown,
    RunJudged,
    RunRequested,
    WatchBegun,
    WatchTrouble,
)
from schemas.pipeline import Pipeline
from schemas.protocol import RunRequest
from schemas.report import ThresholdResult
from schemas.suite import NoticeKind
from schemas.watch import WatchRun
from services.conductor.cancellation import was_asked_for
from services.conductor.orphaned_runs import search_of

MOST_TOLD: Final = 1_000
DIGITS: Final = 16  # of a digest
# By kind of `watch_trouble`, what is reported although the run stays valid.
REPORTED: Final = {
    "undecodable": "records of {} are not judged",
    "not_readable": "{} cannot be read",
    "group_not_read": "the lag of the group {} is unknown",
    "ended": "its process died",
}
TOPICS = (catalogue.LIFECYCLE, catalogue.CONCLUSIONS)
MOST_RUNS = 100
MOST_LINES = 20
HOUR_MS = 3_600_000
FLOOR = protocol.floor_run_id("")
ON_PURPOSE_MS = 60_000  # ignore deaths this soon after a deliberate kill
PLANTS = "_one_in"  # suffix of the settings with which a pipeline plants faults
_WORDS: dict[NoticeKind, str] = {
    "threshold": "a threshold failed",
    "invalid": "INVALID",
    "unclean": "outputs were not exact",
}


class Problem(NamedTuple):
    """A problem of a watch. key: of one that is the same."""

    kind: NoticeKind
    key: tuple[str, ...]
    title: str
    lines: tuple[str, ...]


class Told:
    """The last MOST_TOLD reported problems and change points, as digests, so that each is reported
    once."""

    def __init__(self, saved: Iterable[str] = ()) -> None:
        self._digests = dict.fromkeys(saved)

    def note(self, *parts: str) -> bool:
        """Note a problem; whether it was not noted before. parts: what identifies it."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
        if digest in self._digests:
            return False
        self._digests[digest] = None
        if len(self._digests) > MOST_TOLD:
            del self._digests[next(iter(self._digests))]
        return True

    def saved(self) -> list[str]:
        """The digests, oldest first."""
        return list(self._digests)


def problem(trouble: WatchTrouble, run: str) -> Problem | None:
    """The problem to report; None if it is not reported. run: title of its run."""
    kind, reason, subject = trouble.kind, trouble.reason, trouble.topic or trouble.group
    if trouble.invalid:
        return Problem("invalid", (kind, subject), f"{run}: INVALID", (trouble.invalid,))
    if kind not in REPORTED:
        return None
    title = f"watch {trouble.watch}: {REPORTED[kind].format(subject or 'the cluster')}"
    key, lines = [kind, subject], [reason] if reason else []
    if kind == "undecodable":
        key.append(reason)
        lines.append(f"The first is in partition {trouble.partition} at {trouble.offset}.")
    if kind == "ended":
        lines = lines or [f"exit code {trouble.code}"]
        lines.append(f"It is restarted in {trouble.again_in_s or 0:g} s.")
    return Problem("watch_trouble", tuple(key), title, tuple(lines))


def title_of(run: WatchRun) -> str:
    """A run of a watch: `watch orders, 2026-05-04 03:00 UTC`."""
    begin = datetime.fromtimestamp(run.start_ms / 1000, UTC)
    return f"watch {run.workload.name}, {begin:%Y-%m-%d %H:%M} UTC"


class Notice(BaseModel):
    """One notification. id: the same for every attempt. kinds: why it is sent."""

    model_config = ConfigDict(frozen=True)

    id: str
    at_ms: int
    kinds: tuple[NoticeKind, ...]
    title: str
    lines: tuple[str, ...] = ()
    run_id: str = ""

    def concerns(self, kinds: Iterable[NoticeKind]) -> bool:
        """Whether it has one of these kinds; an empty set matches all."""
        wanted = set(kinds)
        return not wanted or bool(wanted & set(self.kinds))


@dataclass(frozen=True)
class RequestedRun:
    """A requested run. faulty: pipelines whose outputs need not be exact (deploy/grafana/program/
    sql.py)."""

    title: str
    faulty: frozenset[str]


class Looking:
    """Examines events one by one. Its state is what was asked for: names of runs, and faults and
    kills on purpose; and which problems of watches and which change points were reported.

    reported: the latter two, which are saved with the position on the bus.
    """

    def __init__(self, reported: Told | None = None) -> None:
        self._told = reported or Told()
        self._runs: OrderedDict[str, RequestedRun] = OrderedDict()
        self._killed_ms: dict[str, int] = {}

    def at(self, event: BusEvent, place: str) -> Notice | None:
        """The notification for an event; place: the event's position on the bus, used as id."""
        match event:
            case RunRequested():
                self._remember(event.run_id, _asked(event.request))
            case WatchBegun():
                self._remember(event.run_id, RequestedRun(title_of(event.run), frozenset()))
            case Killed():
                self._killed_ms[event.target] = event.time
            case PartDown():
                return self._part_down(event, place)
            case WatchTrouble():
                return self._watch_trouble(event, place)
            case ChangePointFound():
                return self._change_point(event, place)
            case RunJudged(run_id=run_id):
                if not search_of(run_id) and not run_id.endswith(FLOOR):
                    return self._run(event, place)
        return None

    def _remember(self, run_id: str, asked: RequestedRun) -> None:
        self._runs[run_id] = asked
        while len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)

    def _is_on_purpose(self, part: str, at_ms: int) -> bool:
        """Whether a part was killed deliberately shortly before."""
        return at_ms - self._killed_ms.get(part, -ON_PURPOSE_MS) < ON_PURPOSE_MS

    def _watch_trouble(self, event: WatchTrouble, place: str) -> Notice | None:
        """That a run of a watch becomes invalid, once for each kind of problem and topic; any other
        problem once an hour."""
        run_id, at_ms = event.run_id, event.time
        result = problem(event, self._asked(run_id).title)
        by_us = event.kind == "ended" and self._is_on_purpose("broker", at_ms)
        if result is None or by_us:
            return None
        is_of_run = result.kind == "invalid"
        scope = run_id if is_of_run else f"{event.watch} {at_ms // HOUR_MS}"
        is_new = self._told.note(scope, *result.key)
        if is_of_run:
            self._told.note(run_id, *result.lines)  # so that the conclusion does not repeat it
        if not is_new:
            return None
        return Notice(
            id=place,
            at_ms=at_ms,
            kinds=(result.kind,),
            title=result.title,
            lines=result.lines,
            run_id=run_id,
        )

    def _asked(self, run_id: str) -> RequestedRun:
        return self._runs.get(run_id, RequestedRun(run_id, frozenset()))

    def _part_down(self, event: PartDown, place: str) -> Notice | None:
        part = event.part
        if self._is_on_purpose("broker" if part == "kafka" else part, event.time):
            return None
        next_s = "It is restarted." if event.restart else "The stack stops."
        return Notice(
            id=place,
            at_ms=event.time,
            kinds=("part_down",),
            title=f"{part} died",
            lines=(event.reason, next_s),
        )

    def _change_point(self, event: ChangePointFound, place: str) -> Notice | None:
        """That a figure changed. Two searches at the same time, as by `tidegauge changes`, publish
        it twice."""
        series = (event.workload, event.pipeline, event.stage, event.metric)
        if not self._told.note("change_point", *series, event.first_run_after):
            return None
        what = f"{event.stage} of {event.pipeline}, {event.workload}"
        return Notice(
            id=place,
            at_ms=event.time,
            kinds=("change_point",),
            title=f"{what} got {'worse' if event.worse else 'better'}",
            lines=(change_sentence(event.detail), *event.likely_causes)[:MOST_LINES],
            run_id=event.run_id,
        )

    def _run(self, event: RunJudged, place: str) -> Notice | None:
        reasons, verdicts = event.invalid_reasons, event.verdicts
        rows = [ThresholdResult.model_validate(row) for row in event.thresholds]
        if was_asked_for(reasons):
            return None
        failed = [row for row in rows if not row.passed]
        asked = self._asked(event.run_id)
        limited: frozenset[str] = frozenset()
        if event.watch is not None:
            limited = left_to_thresholds(rows)
            reasons = tuple(reason for reason in reasons if self._told.note(event.run_id, reason))
        unclean = unclean_lines(
            {p: verdicts[p] for p in verdicts if p not in asked.faulty}, limited
        )
        kinds: list[NoticeKind] = []
        kinds += ["threshold"] if failed else []
        kinds += ["invalid"] if reasons else []
        kinds += ["unclean"] if unclean else []
        if not kinds:
            return None
        words = [_WORDS[kind] for kind in kinds]
        return Notice(
            id=place,
            at_ms=event.time,
            kinds=tuple(kinds),
            title=f"{asked.title}: {' and '.join(words)}",
            lines=(*map(sentence, failed), *reasons, *unclean)[:MOST_LINES],
            run_id=event.run_id,
        )


def _asked(request: RunRequest) -> RequestedRun:
    workload, pipelines = request.workload, request.pipelines
    return RequestedRun(
        f"{workload.name} on {', '.join(pipeline.name for pipeline in pipelines)}",
        frozenset(
            pipeline.name for pipeline in pipelines if workload.kills or _plants_faults(pipeline)
        ),
    )


def _plants_faults(pipeline: Pipeline) -> bool:
    return any(name.endswith(PLANTS) and value for name, value in pipeline)


def unclean_lines(verdicts: dict[str, Any], limited: Collection[str] = ()) -> list[str]:
    """One line for each pipeline and stage with outputs that are not exact. limited: verdicts that
    do not count."""
    lines = []
    for pipeline, stages in sorted(verdicts.items()):
        for stage, counts in stages.items():
            result = not_exact(counts, limited)
            lines += [f"{pipeline} {stage}: {result}"] if result else []
    return lines


def silence(since_ms: int, minutes: float, now_ms: int, watch: str = "") -> Notice:
    """No results since a time, at all or of one watch."""
    of_watch = f" of the watch {watch}" if watch else ""
    why = "None of its outputs was paired; see `./tidegauge watch`."
    return Notice(
        id=_silence_id("no-results", since_ms, watch),
        at_ms=now_ms,
        kinds=("no_results",),
        title=f"No results{of_watch} for {minutes:g} minutes",
        lines=(why if watch else "Nothing was measured; see `./tidegauge status`.",),
    )


def end_of_silence(since_ms: int, now_ms: int, watch: str = "") -> Notice:
    """Results have resumed."""
    of_watch = f" of the watch {watch}" if watch else ""
    return Notice(
        id=_silence_id("results-again", since_ms, watch),
        at_ms=now_ms,
        kinds=("no_results",),
        title=f"Results{of_watch} have resumed after {(now_ms - since_ms) / 60_000:.0f} minutes",
    )


def _silence_id(what: str, since_ms: int, watch: str) -> str:
    return "/".join(filter(None, (what, watch, str(since_ms))))
