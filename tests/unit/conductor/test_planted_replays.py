"""Recorded runs with planted disturbances (tests/faults/planted.py), replayed a hundred times per
kind: the cause is identified in at least 95, and none is reported without a disturbance.

A replay truncates the measured phase at random and drops some of the outputs. It delivers the
events in another order and split differently, as another evaluator could have published them.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas import catalogue
from schemas.events import Evaluating, FigureColumns, RunRequested
from schemas.protocol import PhasePlan, Phases, RunRequest
from services.conductor.evidence import CollectedEvidence
from services.conductor.warming import Warming
from tests.faults.planted import KINDS, Kind, names_it, read

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parent / "data" / "planted"
REPLAYS, RIGHTLY = 100, 95
MOST_CUT_S = 3
COUNTED = {catalogue.LATENCY: "latencies_ms", catalogue.GENERATOR: "send_delays_us"}
Event = tuple[str, dict[str, Any]]


@cache
def recordings(kind: str) -> tuple[dict[str, Any], ...]:
    """Runs of this kind."""
    return tuple(read(path) for path in sorted(FOLDER.glob(f"{kind}-*.json.xz")))


# Replays of delays that fall are in test_steady_replays.py.
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name != "falling"], ids=lambda kind: kind.name
)
def test_what_was_planted_is_named_rightly(kind: Kind) -> None:
    found = [replayed(recordings(kind.name), seed) for seed in range(REPLAYS)]
    wrong = [told["late"] for told in found if not names_it(told, kind)]
    assert len(wrong) <= REPLAYS - RIGHTLY, wrong[:3]


@pytest.mark.parametrize("run_id", ["1ce2", "06a3"])
def test_a_machine_whose_performance_changed_leaves_a_run_steady(run_id: str) -> None:
    (path,) = FOLDER.glob(f"nothing-{run_id}.json.xz")
    run = read(path)
    request, phases = _plan(run)
    warming = Warming(request)
    for topic, event in run["events"]:
        warming.add(FigureColumns(topic, event))
    found = warming.conclude(phases.measure_start_ms, phases.measure_end_ms)
    assert found.steady
    (changed,) = found.of_machine
    assert changed.startswith("planted: CPU time ")


def replayed(runs: tuple[dict[str, Any], ...], seed: int) -> dict[str, Any]:
    """The conclusion of one of these runs with random changes."""
    chance = np.random.default_rng(seed)
    run = runs[seed % len(runs)]
    request, phases = _plan(run)
    cuts_ms = 1000 * chance.integers(0, MOST_CUT_S, 2, endpoint=True)
    begin_ms = phases.measure_start_ms + int(cuts_ms[0])
    end_ms = phases.measure_end_ms - int(cuts_ms[1])
    keep = chance.uniform(0.6, 1.0)
    events = [
        piece
        for topic, event in run["events"]
        for piece in _pieces(topic, _cut(topic, event, begin_ms, end_ms), keep, chance)
    ]
    watched = CollectedEvidence(request)
    for number in chance.permutation(len(events)).tolist():
        topic, event = events[number]
        if topic != catalogue.LIFECYCLE:
            watched.add(FigureColumns(topic, event))
        elif event["event"] == Evaluating.name:
            lag_ms = json.loads(event["detail"])["largest_lag_ms"]
            watched.add_lag(event["time"] // 1000, lag_ms)
    shorter = Phases(
        warm_up_s=(begin_ms - phases.load_start_ms) // 1000,
        measure_s=(end_ms - begin_ms) // 1000,
        cool_down_s=phases.phases.cool_down_s,
    )
    return watched.detail(PhasePlan(load_start_ms=phases.load_start_ms, phases=shorter))


def _plan(run: dict[str, Any]) -> tuple[RunRequest, PhasePlan]:
    lifecycle = [event for topic, event in run["events"] if topic == catalogue.LIFECYCLE]
    (asked,) = (one for one in lifecycle if one["event"] == RunRequested.name)
    request = RunRequest.model_validate_json(asked["detail"])
    begun_ms = {
        one["phase"]: json.loads(one["detail"])["start_ms"]
        for one in lifecycle
        if one["phase"] in ("warm_up", "measure")
    }
    warm_up_s = (begun_ms["measure"] - begun_ms["warm_up"]) // 1000
    phases = request.workload.phases.model_copy(update={"warm_up_s": warm_up_s})
    return request, PhasePlan(load_start_ms=begun_ms["warm_up"], phases=phases)


def _cut(topic: str, event: dict[str, Any], begin_ms: int, end_ms: int) -> dict[str, Any]:
    """Marks an event that no longer belongs to the measured phase."""
    if topic not in COUNTED or event["phase"] != "measure":
        return event
    if event["second"] < begin_ms:
        return event | {"phase": "warm_up"}
    # Later scheduled records are not measured; their outputs come after them.
    return event | {"phase": "cool_down"} if event["second"] >= end_ms else event


def _pieces(
    topic: str, event: dict[str, Any], keep: float, chance: np.random.Generator
) -> list[Event]:
    """The counts of an event with some dropped, split into two events."""
    if topic not in COUNTED:
        return [(topic, event)]
    kept = chance.binomial(event["counts"], keep)
    half = chance.binomial(kept, 0.5)
    values = np.array(event[COUNTED[topic]])
    return [
        (topic, event | {COUNTED[topic]: values[some].tolist(), "counts": counts[some].tolist()})
        for counts in (half, kept - half)
        if (some := counts > 0).any()
    ]
