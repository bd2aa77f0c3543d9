"""One watch without Kafka: records in, events out once all records before a time are read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from schemas.watch import Watch
from services.runtime.counting import Ints, by_value, int_pairs
from services.runtime.kafka import Place
from services.runtime.process import Clock, now_ms
from services.watcher.counting import Counting, WatchFigures
from services.watcher.extracting import (
    FIRST_US,
    MAX_REASONS,
    OTHERS,
    UNITS,
    UNITS_NS,
    Extractor,
    RefusedRecords,
    sizes,
)
from services.watcher.groups import named
from services.watcher.ledger import Joining, WatchLedger
from services.watcher.records import (
    NONE_MS,
    Codes,
    RecordColumns,
    VerdictColumns,
    joined,
    no_records,
    restored_records,
    saved_records,
)
from services.watcher.removals import Removals
from services.watcher.sampling import Sampling, ShareChange
from services.watcher.troubles import Kind, UnjudgedRow
from services.watcher.windows import Windows

MOST_UNREAD: Final = 400_000  # records waiting for partitions that are behind
CALM_MS: Final = 600_000  # with few inputs remembered, before more identities are sampled
MOST_AHEAD_MS: Final = 3_600_000  # limit of a record's time ahead of this machine's
EARLIER_MS: Final = 1_000  # before the watch began: what was on its way then
AHEAD: Final = "its timestamp is more than an hour ahead of this machine's clock"
CLOSED: Final = "its timestamp is in a run that was concluded long ago"
OLD: Final = "its timestamp is from long before the watch began"
BEFORE: Final = "its timestamp is from before the watch began"
AFTER: Final = "its timestamp is from after the end of the watch"
NONE: Final = "it has no timestamp"
# Timestamps in other units than milliseconds: what one of them has to be multiplied by.
MS_OF: Final = {
    word: UNITS_NS[unit] / UNITS_NS["ms"] for unit, word in UNITS.items() if unit != "ms"
}
FIRST_MS: Final = FIRST_US // 1_000  # no record is earlier
KINDS: Final = {TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime", TIMESTAMP_CREATE_TIME: "CreateTime"}


class JudgedStage:
    """A stage of a watch: its topics, records that wait until earlier ones have been read, ledger
    and counts."""

    def __init__(
        self,
        watch: Watch,
        place_of: Callable[[int], Place],
        is_create: Callable[[Codes], npt.NDArray[np.bool_]],
        topics_of: Callable[[Codes], Ints] | None,
    ) -> None:
        self.inputs = frozenset(each.topic for each in watch.inputs)
        self.outputs = frozenset(each.topic for each in watch.outputs)
        self.unread = {True: [no_records()], False: [no_records()]}  # inputs, outputs
        self.joining = Joining(watch.inputs_per_output, watch.relation.give_up_ms, topics_of)
        is_window = watch.relation.kind == "window"
        self.ledger = Windows(watch.relation) if is_window else WatchLedger(watch.relation)
        self.counting = Counting(watch, place_of, is_create)

    @property
    def remembered(self) -> int:
        """Groups of inputs, inputs that wait for others, and outputs that wait for an input."""
        return len(self.ledger) + len(self.joining.waiting) + len(self.ledger.waiting)

    def take(self, topic: str, records: RecordColumns) -> None:
        """Add records of a topic, if it is one of this stage."""
        for is_input, topics in ((True, self.inputs), (False, self.outputs)):
            if topic in topics:
                self.unread[is_input].append(records)

    def early(self, is_input: bool, before_ms: int, sampling: Sampling) -> RecordColumns:
        """Remove and return the records of a side before a time, in order."""
        whole = joined(self.unread[is_input])
        early = whole.time_ms < before_ms
        self.unread[is_input] = [whole.take(~early)]
        mine = whole.take(early & sampling.is_taken(whole.hash))
        return mine.take(np.lexsort((mine.offset, mine.place, mine.time_ms)))

    def judge(self, before_ms: int, sampling: Sampling) -> VerdictColumns:
        """The verdicts on everything before a time."""
        inputs = self.early(True, before_ms, sampling)
        outputs = self.early(False, before_ms, sampling)
        groups = self.joining.complete(inputs, before_ms)
        return self.ledger.judge(groups, outputs, before_ms)

    def limit_unread(self, sampling: Sampling) -> None:
        """Remove what is not sampled from the records that wait."""
        for is_input, parts in self.unread.items():
            whole = joined(parts)
            self.unread[is_input] = [whole.take(sampling.is_limited(whole.hash))]

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays, and the totals as JSON, for `restore`."""
        arrays = self.ledger.saved() | self.joining.saved()
        for is_input, parts in self.unread.items():
            arrays |= saved_records(joined(parts), f"unread_{int(is_input)}")
        latencies, totals = self.counting.saved()
        return arrays | latencies, totals

    def restore(self, arrays: dict[str, npt.NDArray[Any]], totals: dict[str, Any]) -> None:
        """Restore saved state."""
        self.counting.restore(arrays, totals)
        self.ledger.restore(arrays)
        self.joining.restore(arrays)
        for side in self.unread:
            self.unread[side] = [restored_records(arrays, f"unread_{int(side)}")]


class Watched:
    """A watch in progress. Records are read and extracted once, and judged by each stage: the
    whole, and its hops.

    since_ms: earlier inputs are known but not judged, so that their outputs are not unexpected.
    closed_ms: earlier records are refused, as their runs are concluded and removed.
    live_from: the first offset of each partition that did not exist when the watch began; missing
    ones were not there then. inputs: names of the input topics. removals: what was removed before
    it was read. refused: records without an identity since the last query, by topic and reason.
    """

    def __init__(self, watch: Watch, since_ms: int, clock: Clock = now_ms) -> None:
        self.watch = watch
        self.since_ms = since_ms
        self.closed_ms = NONE_MS
        self.live_from: dict[Place, int] = {}
        between = frozenset(each.topic for each in watch.through)
        self.removals = Removals(watch.relation, clock(), between)
        self._clock = clock
        self.before_ms = 0
        self._first_ms: int | None = None  # the second of the earliest record
        self.sampling = Sampling(watch)
        self._last_seen: dict[str, dict[str, int]] = {}  # by topic and timestamp type, epoch ms
        self.refused: dict[tuple[str, str], RefusedRecords] = {}
        self._places: list[tuple[str, int, bool]] = []  # whether it has CreateTime
        self._codes: dict[tuple[str, int, bool], int] = {}
        self._extractors = {
            each.topic: Extractor(each, watch.registry_of(each.topic)) for each in watch.sides
        }
        places = (self._place_of, self._is_create)
        self._main = JudgedStage(watch, *places, None if watch.relation.inputs else self._topics_of)
        self._hops = [JudgedStage(watch.of_hop(hop), *places, None) for hop in watch.hops]
        self._stages = (self._main, *self._hops)
        self.inputs = self._main.inputs
        self.ledger, self.counting = self._main.ledger, self._main.counting
        self.hops = [hop.counting for hop in self._hops]
        self._kept = self.sampling.taken
        self._crowded_ms: int | None = None  # when many inputs were remembered, or the first look

    @property
    def from_ms(self) -> int:
        """From when on records count: the begin of the watch, or the second of the earliest record
        if one run has all; the end if there is none."""
        if not self.watch.is_one_run:
            return self.since_ms
        return self.before_ms if self._first_ms is None else self._first_ms

    @property
    def unread(self) -> int:
        """Number of records that wait until earlier ones have been read."""
        sides = (side for stage in self._stages for side in stage.unread.values())
        return sum(len(part) for side in sides for part in side)

    def take(
        self, topic: str, messages: list[Message], visible_ms: Ints | None = None
    ) -> list[tuple[Place, int, int, int]]:
        """Add records of one topic in reading order. visible_ms: when consumers of committed
        records could have each, NONE_MS or None if unknown; only with LogAppendTime is that of the
        same clock. Returns for each partition the last offset, the time up to which its records say
        that it is read, and their newest time; NONE_MS if no time is valid. A producer's time after
        now says nothing about records of other producers."""
        count = len(messages)
        kinds, times = int_pairs(map(Message.timestamp, messages), count)
        visible = np.full(count, NONE_MS, np.int64)
        if visible_ms is not None:
            visible = np.where(kinds == TIMESTAMP_LOG_APPEND_TIME, visible_ms, NONE_MS)
        partitions = np.fromiter(map(Message.partition, messages), np.int64, count)
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        codes = np.empty(count, np.int32)
        now = self._clock()
        ahead = times > now + MOST_AHEAD_MS
        known = ~ahead & ((kinds == TIMESTAMP_LOG_APPEND_TIME) | (times <= now))
        is_live = np.empty(count, bool)
        last = []
        for partition, rows in by_value(partitions):
            place = (topic, partition)
            for kind, mine in by_value(kinds[rows]):
                code = self._code((*place, kind == TIMESTAMP_CREATE_TIME))
                codes[np.arange(count)[rows][mine]] = code
            is_live[rows] = offsets[rows] >= self.live_from.get(place, 0)
            read_ms, newest_ms = (
                int(times[rows].max(initial=NONE_MS, where=each[rows])) for each in (known, ~ahead)
            )
            last.append((place, int(offsets[rows][-1]), read_ms, newest_ms))
            self._note_removed(place, offsets[rows], times[rows])
        latest_ms = int(times.max(initial=NONE_MS, where=~ahead))
        seen = self._last_seen.setdefault(topic, {})
        for name in (KINDS.get(each, "none") for each in np.unique(kinds).tolist()):
            seen[name] = max(seen.get(name, NONE_MS), latest_ms)
        in_seconds = (1_000.0 * times > FIRST_MS) & (1_000.0 * times < now)
        old = (times < self.since_ms - self.watch.relation.remember_ms) | (times <= 0) | in_seconds
        old &= is_live & ~ahead
        closed = ~old & (times < self.closed_ms)
        for bad, reason in ((ahead, AHEAD), (old, OLD), (closed, CLOSED)):
            self._refuse_times(topic, messages, times, bad, reason)
        early = is_live & ~(old | closed | ahead) & (times < self.since_ms - EARLIER_MS)
        self._leave_out(topic, "outside", BEFORE, messages, np.flatnonzero(early))
        good = np.flatnonzero(~(ahead | old | closed))
        if len(good) < count:
            messages = [messages[row] for row in good.tolist()]
            times, codes, visible = times[good], codes[good], visible[good]
        if messages:
            self._take(topic, messages, times, codes, visible)
        return last

    def _note_removed(self, place: Place, offsets: Ints, times: Ints) -> None:
        """Count the records of a partition that were removed before these were read."""
        is_input = place[0] in self.inputs
        records, at_ms = self.removals.read(place, is_input, offsets, times)
        if records:
            row = UnjudgedRow(place[0], "removed", self.removals.how(place[0]), records, place[1])
            self.counting.leave_out(row, np.full(records, at_ms))

    def timestamp_types(self, since_ms: int) -> dict[str, set[str]]:
        """Timestamp types that records from a time on have had, by topic."""
        return {
            topic: {kind for kind, last_ms in seen.items() if last_ms >= since_ms}
            for topic, seen in self._last_seen.items()
        }

    def count_aborted(self, topic: str, by_second: Mapping[int, int]) -> None:
        """Count records of aborted transactions of an output topic, by second (epoch ms), of those
        that begin after the watch began."""
        for second, records in by_second.items():
            for stage in self._stages:
                if second >= self.since_ms and topic in stage.outputs:
                    stage.counting.add_aborted(topic, second, records)

    def _take(
        self, topic: str, messages: list[Message], times: Ints, codes: Codes, visible: Ints
    ) -> None:
        self._count(topic, times, messages)
        result = self._extractors[topic].extract(messages)
        for reason, each in result.refused.items():
            self._refuse(topic, reason, each, times[each.rows])
        for reason, each in result.others.items():
            row = UnjudgedRow(topic, each.kind, reason, each.count, each.partition, each.offset)
            self.counting.leave_out(row, _from(times[each.rows], self.since_ms))
        self.sampling.count(times)
        mine = self.sampling.is_limited(result.hash)
        rows = result.rows[mine]
        counted = messages
        if len(rows) < len(messages):
            counted = [messages[row] for row in rows.tolist()]
        by = np.full(len(rows), -1, np.int32)
        if result.by:
            by = self.counting.slices.values.codes(result.by, times[result.rows])[mine]
        windows = np.zeros((len(result.rows), 1), np.int64)
        if result.times_us:
            windows = np.array(result.times_us, np.int64)
        columns = RecordColumns(
            result.hash[mine],
            times[rows],
            codes[rows],
            np.fromiter(map(Message.offset, counted), np.int64, len(rows)),
            by,
            windows[mine, 0],
            windows[mine, -1],
            visible[rows],
        )
        for stage in self._stages:
            stage.take(topic, columns)

    def advance(self, before_ms: int) -> Iterator[WatchFigures]:
        """Judge everything before a time up to which all has been read. The sum of events depends
        on the records only, their division does not."""
        before_ms = max(self.before_ms, before_ms)
        for end_ms in self.sampling.ends(before_ms):
            yield from self._judge(end_ms)
        yield from self._judge(before_ms)
        self.counting.slices.values.turn(self.before_ms)
        yield from self.throughput()

    def throughput(self) -> Iterator[WatchFigures]:
        """Throughput since the last call."""
        for stage in self._stages:
            yield from stage.counting.throughput_events()

    def slices(self) -> Iterator[WatchFigures]:
        """Latencies by partition and field since the last call."""
        for stage in self._stages:
            yield from stage.counting.slices.take()

    def _judge(self, before_ms: int) -> Iterator[WatchFigures]:
        self._keep()
        self.before_ms = max(self.before_ms, before_ms)
        for stage in self._stages:
            judged = stage.judge(self.before_ms, self.sampling)
            about_ms = judged.about_ms
            mine = (about_ms >= self.since_ms) & self.sampling.is_counted(judged.hash, about_ms)
            judged = judged.take(mine)
            unpaired = self.removals.may_explain(judged)
            self._leave_unpaired(stage, judged.take(unpaired))
            yield from stage.counting.events(judged.take(~unpaired))
        self.removals.forget(self.before_ms)

    def _leave_unpaired(self, stage: JudgedStage, judged: VerdictColumns) -> None:
        """Count outputs and inputs of a stage whose counterpart may have been removed."""
        for code, rows in by_value(judged.place.astype(np.int64)):
            of_place = judged.take(rows)
            topic, partition = self._place_of(code)
            reason = self.removals.why(topic in stage.inputs)
            row = UnjudgedRow(
                topic, "unpaired", reason, len(of_place), partition, int(of_place.offset[0])
            )
            self.counting.leave_out(row, of_place.about_ms)

    def end(self) -> None:
        """Count what is not judged because the watch ends: records with later timestamps."""
        now = self._clock()
        counted: set[str] = set()
        for stage in self._stages:
            for parts in stage.unread.values():
                self._leave_late(joined(parts), now, counted)
            counted |= stage.inputs | stage.outputs

    def _leave_late(self, late: RecordColumns, now: int, counted: set[str]) -> None:
        """Count records with timestamps after the end, except those of topics that are counted."""
        late = late.take(late.time_ms > max(now, self.before_ms) + EARLIER_MS)
        for code, rows in by_value(late.place.astype(np.int64)):
            topic, partition = self._place_of(code)
            if topic in counted:
                continue
            of_place = late.take(rows)
            first = int(of_place.offset.min())
            row = UnjudgedRow(topic, "outside", AFTER, len(of_place), partition, first)
            self.counting.leave_out(row, np.full(len(of_place), self.before_ms))

    def _keep(self) -> None:
        """Remove identities that are no longer sampled."""
        if self.sampling.taken < self._kept:
            for stage in self._stages:
                stage.joining.keep(self.sampling.taken)
                stage.ledger.keep(self.sampling.taken)
        self._kept = self.sampling.taken

    def halve(self) -> None:
        """Halve the sampled identities from now on."""
        self.sampling.halve()
        self._keep()
        for stage in self._stages:
            stage.limit_unread(self.sampling)

    def double(self) -> ShareChange | None:
        """After `halve`, double the sampled identities if less than a quarter of `max_records`
        inputs have been remembered for CALM_MS. Returns the change; the position must be saved
        before anything else is read. Only records up to MOST_AHEAD_MS from now have been read."""
        if self._crowded_ms is None or 4 * self._remembered > self.watch.max_records:
            self._crowded_ms = self.before_ms
        if self.before_ms - self._crowded_ms < CALM_MS:
            return None
        self._crowded_ms = self.before_ms
        return self.sampling.double(self.before_ms, self._clock() + MOST_AHEAD_MS)

    @property
    def is_full(self) -> bool:
        """Whether the memory limit is exceeded."""
        return self._remembered > self.watch.max_records

    @property
    def _remembered(self) -> int:
        return sum(stage.remembered for stage in self._stages)

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON, for `restore`."""
        arrays, totals = self._main.saved()
        of_hops = [hop.saved() for hop in self._hops]
        for number, (columns, _) in enumerate(of_hops):
            arrays |= {f"hop_{number}_{name}": column for name, column in columns.items()}
        rest = {
            "since_ms": self.since_ms,
            "first_ms": self._first_ms,
            "before_ms": self.before_ms,
            "closed_ms": self.closed_ms,
            "sampling": self.sampling.saved(),
            "last_seen": self._last_seen,
            "places": self._places,
            "values": self.counting.slices.values.names,
            "totals": totals,
            "hops": [totals_of_hop for _, totals_of_hop in of_hops],
            "live_from": [[*place, offset] for place, offset in self.live_from.items()],
            "removals": self.removals.saved(),
        }
        return arrays, rest

    def restore(self, arrays: dict[str, npt.NDArray[Any]], rest: dict[str, Any]) -> None:
        """Restore saved state."""
        self.since_ms, self.before_ms = rest["since_ms"], rest["before_ms"]
        self.closed_ms = rest["closed_ms"]
        self._first_ms = rest.get("first_ms")  # not in releases up to 0.1.0
        self.sampling.restore(rest["sampling"])
        self._kept = self.sampling.taken
        self._last_seen = rest["last_seen"]
        for topic, partition, *is_create in rest["places"]:
            self._code((topic, partition, is_create == [True]))
        self.live_from = {(each, n): offset for each, n, offset in rest["live_from"]}
        self.removals.restore(rest["removals"])
        self._main.restore(arrays, rest["totals"])
        self.counting.slices.values.restore(rest["values"])
        for number, hop in enumerate(self._hops):
            hop.restore(named(arrays, f"hop_{number}_"), rest["hops"][number])

    def _count(self, topic: str, times: Ints, messages: list[Message]) -> None:
        lengths = np.fromiter(sizes(messages), np.int64, len(messages))
        judged = times >= self.since_ms
        if judged.any():
            first_ms = int(times[judged].min()) // 1000 * 1000
            known_ms = self._first_ms
            self._first_ms = first_ms if known_ms is None else min(first_ms, known_ms)
            for stage in self._stages:
                # A topic between hops is counted once, as an output.
                is_input = stage is self._main and topic in stage.inputs
                if is_input or topic in stage.outputs:
                    stage.counting.add_records(topic, is_input, times[judged], lengths[judged])

    def _refuse_times(
        self,
        topic: str,
        messages: list[Message],
        times: Ints,
        bad: npt.NDArray[np.bool_],
        reason: str,
    ) -> None:
        """Refuse records with an unusable time: they count in the current run."""
        rows = np.flatnonzero(bad)
        reasons = _reasons(times[rows], reason, self._clock())
        for item in sorted({*reasons}):
            mine = [row for row, each in zip(rows.tolist(), reasons, strict=True) if each == item]
            first = messages[mine[0]]
            refused = RefusedRecords(first.partition(), first.offset(), len(mine))
            self._refuse(topic, item, refused, np.full(len(mine), self._clock()))

    def _leave_out(
        self, topic: str, kind: Kind, reason: str, messages: list[Message], rows: Ints
    ) -> None:
        """Count records of the current run that are not judged."""
        if len(rows):
            first = messages[int(rows[0])]
            row = UnjudgedRow(topic, kind, reason, len(rows), first.partition(), first.offset())
            self.counting.leave_out(row, np.full(len(rows), self._clock()))

    def _refuse(
        self, topic: str, reason: str, refused_records: RefusedRecords, times: Ints
    ) -> None:
        """Note a reason of refused records, and count each in the run of its time."""
        row = UnjudgedRow(
            topic,
            "refused",
            reason,
            refused_records.count,
            refused_records.partition,
            refused_records.offset,
        )
        self.counting.leave_out(row, _from(times, self.since_ms))
        of_topic = sum(of == topic for of, _ in self.refused)
        is_known = (topic, reason) in self.refused or of_topic < MAX_REASONS
        name = (topic, reason if is_known else OTHERS)
        known = self.refused.get(name)
        if known is None:
            self.refused[name] = refused_records
        else:
            known.count += refused_records.count

    def _topics_of(self, codes: Codes) -> Ints:
        """Number of the input topic of each place code."""
        names = [each.topic for each in self.watch.inputs]
        topics = [names.index(topic) if topic in names else -1 for topic, *_ in self._places]
        return np.array(topics, np.int64)[codes]

    def _place_of(self, code: int) -> Place:
        return self._places[code][:2]

    def _is_create(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """Which place codes are of records with CreateTime."""
        return np.array([each for *_, each in self._places], bool)[codes]

    def _code(self, place: tuple[str, int, bool]) -> int:
        code = self._codes.get(place)
        if code is None:
            code = self._codes[place] = len(self._places)
            self._places.append(place)
        return code


def _from(times: Ints, since_ms: int) -> Ints:
    return times[times >= since_ms]


def _reasons(times: Ints, reason: str, now_ms: int) -> list[str]:
    """Why each of some times is of no use: the given reason, or the unit it seems to be in."""
    reasons = [NONE if each <= 0 else reason for each in times.tolist()]
    for unit, factor in MS_OF.items():
        meant_ms = times * factor
        for row in np.flatnonzero((meant_ms > FIRST_MS) & (meant_ms < now_ms + MOST_AHEAD_MS)):
            reasons[row] = f"its timestamp seems to be in {unit} instead of milliseconds"
    return reasons
