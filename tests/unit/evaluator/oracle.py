"""The ledger by brute force: plain dictionaries, one output at a time, with all records known.

Written from the definitions (ARCHITECTURE.md: outputs of each stage, three latencies, six verdicts,
append order) and not from the evaluator. For every output it recomputes what the inputs appended up
to a time imply, so it needs no waiting, no frontier and no reading order.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from tests.unit.evaluator.records import (
    DEADLINE_MS,
    FAR_MS,
    MEASURE_END_MS,
    MEASURE_MS,
    RUN_ID,
    Output,
    Reading,
    Totals,
    parsed,
    slid,
    tumbled,
)

Key = tuple[Any, ...]
Content = dict[str, Any] | bytes


@dataclass(frozen=True)
class Due:
    """An expected output, and the inputs that contribute to it."""

    content: Content
    inputs: tuple[Reading, ...]

    @property
    def key(self) -> bytes:
        """The measurement id."""
        return self.inputs[0].site.encode()

    @property
    def latest_ms(self) -> int:
        return max(reading.appended_ms for reading in self.inputs)

    @property
    def mean_ms(self) -> Fraction:
        return Fraction(sum(reading.appended_ms for reading in self.inputs), len(self.inputs))

    @property
    def scheduled_us(self) -> int:
        return max(reading.scheduled_us for reading in self.inputs)


def phase_of(scheduled_us: int) -> str:
    """Phase of a scheduled time."""
    if scheduled_us < MEASURE_MS * 1000:
        return "warm_up"
    return "measure" if scheduled_us < MEASURE_END_MS * 1000 else "cool_down"


def change(new: Fraction | None, old: Fraction | None) -> float | None:
    """Relative change; None if the old value is 0 or missing."""
    return None if not old or new is None else float((new - old) / old)


def expectations(readings: list[Reading], publishes: bool = False) -> dict[str, dict[Key, Due]]:
    """The expected outputs of each stage, by output key.

    Of several records with the same lane, kind and event time, the first in the topic counts; in a
    window, the first of each lane and kind. If numbers of lanes disagree, the largest counts.
    publishes: incomplete windows with at least one record of each kind are due as well.
    """
    due: dict[str, dict[Key, Due]] = {
        stage: {} for stage in ("ingest", "parse", "join", "tumbling", "sliding")
    }
    lanes: dict[Key, dict[str, Reading]] = {}
    reports: dict[Key, dict[Key, Reading]] = {}
    for reading in readings:
        if reading.run_id != RUN_ID:
            continue
        key = (reading.sequence,)
        due["ingest"].setdefault(key, Due(reading.encoded, (reading,)))
        due["parse"].setdefault(key, Due(parsed(reading), (reading,)))
        lane = (reading.site, reading.lane, reading.observed_ms)
        lanes.setdefault(lane, {}).setdefault(reading.kind, reading)
        window = (reading.site, reading.observed_ms // 1000 * 1000)
        reports.setdefault(window, {}).setdefault((reading.lane, reading.kind), reading)

    windows = {window: list(members.values()) for window, members in reports.items()}
    for (site, lane, observed_ms), kinds in lanes.items():
        if len(kinds) == 2:
            flow, speed = kinds["flow"], kinds["speed"]
            content = {
                "run_id": RUN_ID,
                "measurement_id": site,
                "lane": lane,
                "num_lanes": max(flow.lanes, speed.lanes),
                "observed_at": observed_ms,
                "flow_vehicles_per_hour": int(flow.value),
                "speed_km_per_hour": float(speed.value),
            }
            due["join"][site, lane, observed_ms] = Due(content, (flow, speed))
    sums: dict[Key, tuple[Fraction, Fraction]] = {}
    for (site, start_ms), members in windows.items():
        flows = [r for r in members if r.kind == "flow"]
        speeds = [r for r in members if r.kind == "speed"]
        is_whole = len(flows) == len(speeds) == max(r.lanes for r in members)
        if is_whole or (publishes and flows and speeds):
            flow_sum = Fraction(sum(int(r.value) for r in flows))
            mean_speed = sum((Fraction(r.value) for r in speeds), Fraction()) / len(speeds)
            sums[site, start_ms] = flow_sum, mean_speed
            content = tumbled(len(flows), int(flow_sum), float(mean_speed), start_ms=start_ms)
            content["measurement_id"] = site
            due["tumbling"][site, start_ms] = Due(content, tuple(members))
    for site, newest_ms in sums:
        parts = [(site, newest_ms - 1000 * before) for before in (2, 1, 0)]
        there = [part for part in parts if part in sums]
        if len(there) == 3 or publishes:
            (flow0, speed0), (flow1, speed1), (flow2, speed2) = (
                sums.get(part, (None, None)) for part in parts
            )
            content = slid(
                (change(flow2, flow1), change(flow2, flow0)),
                (change(speed2, speed1), change(speed2, speed0)),
                start_ms=newest_ms - 2000,
                measurement_id=site,
            )
            members = [reading for part in there for reading in windows[part]]
            due["sliding"][site, newest_ms - 2000] = Due(content, tuple(members))
    return due


def key_of(output: Output, readings_by_bytes: dict[bytes, Reading]) -> Key | None:
    """The expected output that an output is matched to; None if it matches none."""
    if output.stage == "ingest":
        reading = readings_by_bytes.get(output.raw)
        return None if reading is None else (reading.sequence,)
    if output.fields is None:
        return None
    names = {
        "parse": ("sequence",),
        "join": ("measurement_id", "lane", "observed_at"),
        "tumbling": ("measurement_id", "window_start"),
        "sliding": ("measurement_id", "window_start"),
    }[output.stage]
    return tuple(output.fields[name] for name in names)


def same(expected: Content, actual: Content) -> bool:
    """Equality, except for means and relative changes, whose sums may be added in any order."""
    if isinstance(expected, bytes) or isinstance(actual, bytes):
        return expected == actual
    rough = {"average_speed_km_per_hour", *(name for name in expected if "_change_" in name)}
    for name, value in expected.items():
        if name in rough and value is not None and actual[name] is not None:
            if abs(actual[name] - value) > 1e-9 * max(1.0, abs(value)):
                return False
        elif actual[name] != value:
            return False
    return True


class History:
    """Expected outputs from the inputs appended up to any time."""

    def __init__(self, readings: list[Reading], publishes: bool) -> None:
        self._readings = readings
        self._publishes = publishes
        self._known: dict[int, dict[str, dict[Key, Due]]] = {}

    def at(self, time_ms: int) -> dict[str, dict[Key, Due]]:
        """Expected outputs from the inputs appended up to a time."""
        if time_ms not in self._known:
            past = [one for one in self._readings if one.appended_ms <= time_ms]
            self._known[time_ms] = expectations(past, self._publishes)
        return self._known[time_ms]

    def due(self, output: Output, key: Key) -> Due | None:
        """The expected output that an output is judged against: from the inputs up to its own time.
        If these imply none, and it is not a partial window, from the inputs up to the first later
        time within the deadline that imply one."""
        own_ms = output.appended_ms
        found = self.at(own_ms)[output.stage].get(key)
        if found is not None or (self._publishes and output.stage in ("tumbling", "sliding")):
            return found
        later = {one.appended_ms for one in self._readings}
        for time_ms in sorted(one for one in later if own_ms < one <= own_ms + DEADLINE_MS):
            found = self.at(time_ms)[output.stage].get(key)
            if found is not None:
                return found
        return None


def judge(readings: list[Reading], outputs: list[Output], publishes: bool = False) -> Totals:
    """Totals after everything was read and every deadline has passed. Records of one topic and
    partition must be ordered by offset; outputs of several partitions are judged by LogAppendTime,
    then partition."""
    history = History(readings, publishes)
    by_bytes = {reading.encoded: reading for reading in readings}
    totals, seen = Totals(), set()
    for output in sorted(outputs, key=lambda one: (one.appended_ms, one.partition)):
        key = key_of(output, by_bytes)
        expected = history.due(output, key) if key is not None else None
        out_ms = output.appended_ms
        if expected is None:
            phase = phase_of(out_ms * 1000)
            totals.count_verdict(output.stage, phase, out_ms, "unexpected", 1)
            continue
        phase = phase_of(expected.scheduled_us)
        if (output.stage, key) in seen:
            totals.count_verdict(output.stage, phase, out_ms, "duplicate", 1)
            continue
        seen.add((output.stage, key))
        latencies = [
            ("latest", out_ms - expected.latest_ms),
            ("mean", floor(out_ms - expected.mean_ms + Fraction(1, 2))),
            ("event_time", out_ms - expected.scheduled_us // 1000),
        ]
        handed = [reading.handed_ms for reading in expected.inputs]
        if None not in handed:
            latencies.append(("processing_time", out_ms - max(handed)))
        for definition, latency_ms in latencies:
            totals.count_latency(output.stage, definition, phase, out_ms, latency_ms, 1)
        content = output.raw if output.fields is None else output.fields
        verdict = "late" if out_ms > expected.latest_ms + DEADLINE_MS else "exact"
        if not same(expected.content, content) or output.key_on_the_wire != expected.key:
            verdict = "wrong"
        totals.count_verdict(output.stage, phase, out_ms, verdict, 1)
    for stage, expected_by_key in history.at(FAR_MS).items():
        for key, expected in expected_by_key.items():
            if (stage, key) not in seen:
                phase = phase_of(expected.scheduled_us)
                totals.count_verdict(stage, phase, expected.latest_ms, "missing", 1)
    return totals.without_nothing()
