"""The events of a run of a watch, created by the watcher's own code from records."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME

from schemas import catalogue
from schemas.events import Conclusion, LifecycleEvent, WatchTrouble
from schemas.watch import Watch
from services.runtime.kafka import LAG
from services.watcher.counting import WatchFigures
from services.watcher.group_lag import ObservedGroup, PartitionLag
from services.watcher.runs import WatchRuns, run_id_of
from services.watcher.watched import Watched
from services.watcher.watching import said_of_times
from tests.unit.watcher.records import message

WATCH = Watch.model_validate(
    {
        "name": "orders",
        "summary": "Orders of the shop.",
        "inputs": [{"topic": "orders"}],
        "outputs": [{"topic": "shipped", "by": "header.land"}],
        "relation": {"deadline_ms": 100, "give_up_ms": 200, "remember_ms": 400},
        "begin": "earliest",
        "run_s": 3_600,
        "thresholds": ["p99_ms <= 100", "missing <= 1", "records_per_second >= 5"],
    }
)
PATH = Watch.model_validate(
    {
        "name": "orders",
        "stage": "whole",
        "inputs": [{"topic": "orders"}],
        "through": [{"topic": "priced"}],
        "outputs": [{"topic": "shipped"}],
        "hops": [
            {"name": "price", "inputs": ["orders"], "outputs": ["priced"]},
            {"name": "pack", "inputs": ["priced"], "outputs": ["shipped"]},
        ],
        "thresholds": ["pack.missing <= 0", "price.max_ms <= 10"],
    }
)
PRODUCER = "watch-orders"
TOOK_MS = (3, 4, 4, 9, 250)  # of five outputs; the last is late
COMMIT_MS, ABORTED = 700, 3  # after the first output; records of an aborted transaction


def watch_events(start_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(topic, record) of a run whose topics have six inputs and seven outputs: one is missing, one
    is duplicated, and one has no input. The outputs are of one transaction; another was aborted."""
    watched = Watched(WATCH, 0, clock=lambda: start_ms)
    runs = WatchRuns(WATCH, {"host": "here"})
    inputs = [message("orders", b"12345", b"o%d" % n, start_ms + n, offset=n) for n in range(6)]
    outputs = []
    for number, took_ms in enumerate(TOOK_MS):
        place = {"offset": number, "headers": [("land", b"x")]}
        at_ms = start_ms + number + took_ms
        outputs.append(message("shipped", b"1", b"o%d" % number, at_ms, **place))
    again = message("shipped", b"1", b"o0", start_ms + 20, offset=5)
    nobody = message("shipped", b"1", b"x", start_ms + 21, offset=6)
    watched.take("orders", inputs)
    shipped = [*outputs[:4], again, nobody, outputs[4]]
    watched.take("shipped", shipped, np.full(len(shipped), start_ms + COMMIT_MS))
    watched.count_aborted("shipped", {start_ms: ABORTED})
    run = watched.counting.run_of(start_ms)
    counted = [*watched.advance(start_ms + 10_000), *watched.counting.slices.take()]
    told = {"share": 1.0, "times": said_of_times(watched.timestamp_types(0), [1], None)}
    concluded = runs.conclude(run, watched.counting.totals[run], (0, start_ms + 1_000), told)
    for event in runs.begin(run):
        yield _record(event, 1000 * run * WATCH.run_s)
    for event in [*counted, *concluded]:
        yield _record(event, start_ms)
    lag = {"names": [LAG], "labels": [{"group": "shop", "topic": "orders", "partition": "0"}]}
    lag |= {"kinds": ["gauge"], "values": [3.0], "increases": [None], "interval_s": None}
    yield _record(WatchFigures(catalogue.METRICS, run, {"source": PRODUCER, **lag}), start_ms)
    trouble = {"kind": "undecodable", "watch": "orders", "topic": "orders", "records": 2}
    yield _record(WatchTrouble(run_id=run_id_of(WATCH, run), **trouble), start_ms)


def copied_events(start_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(topic, record) of a run whose 20 outputs have the timestamps of their inputs; two further
    inputs have timestamps in seconds."""
    watched, runs = Watched(WATCH, start_ms - 1, clock=lambda: start_ms), WatchRuns(WATCH, {})
    told: dict[str, Any] = {"kind": TIMESTAMP_CREATE_TIME}
    for number in range(20):
        place = {"ms": start_ms + 7 * number, "offset": number, **told}
        watched.take("orders", [message("orders", b"1", b"o%d" % number, **place)])
        watched.take("shipped", [message("shipped", b"1", b"o%d" % number, **place)])
    for offset in (20, 21):
        ms = start_ms // 1000
        watched.take("orders", [message("orders", b"1", b"s", ms, offset=offset, **told)])
    run = watched.counting.run_of(start_ms)
    counted = list(watched.advance(start_ms + 10_000))
    totals = watched.counting.end(run)
    times = said_of_times(watched.timestamp_types(0), [1], None, totals.unmeasured)
    ended = runs.conclude(run, totals, (0, start_ms + 1_000), {"share": 1.0, "times": times})
    for event in [*runs.begin(run), *counted, *ended]:
        yield _record(event, start_ms)


def begun_events(start_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(topic, record) of a run of the watch that has only begun."""
    run = start_ms // (1000 * WATCH.run_s)
    for event in WatchRuns(WATCH, {"host": "here"}).begin(run):
        yield _record(event, 1000 * run * WATCH.run_s)


def path_events(start_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(topic, record) of a run of a path: of four orders one stops at each hop, and one is shipped
    twice. The group `shop` is behind in time."""
    watched, runs = Watched(PATH, 0, clock=lambda: start_ms), WatchRuns(PATH, {})
    sent = {"orders": ((0, 0), (1, 0), (2, 0), (3, 0)), "priced": ((0, 5), (1, 6), (2, 7))}
    sent["shipped"] = ((0, 20), (1, 21), (1, 30))
    for topic, records in sent.items():
        messages = [
            message(topic, b"", b"%d" % name, start_ms + ms, offset=number)
            for number, (name, ms) in enumerate(records)
        ]
        watched.take(topic, messages)
    run = watched.counting.run_of(start_ms)
    counted = [*watched.advance(start_ms + 1_000_000), *watched.slices()]
    totals, *hops = (each.end(run) for each in (watched.counting, *watched.hops))
    judged = {"share": 1.0, "times": said_of_times(watched.timestamp_types(0), [1], None)}
    concluded = runs.conclude(run, totals, (0, start_ms + 1_000), judged, hops=hops)
    for event in runs.begin(run):
        yield _record(event, 1000 * run * WATCH.run_s)
    for event in [*counted, *concluded]:
        yield _record(event, start_ms)
    for second, behind_ms, left in ((0, 1_250, 12.5), (5, 375, None)):
        lags = (
            PartitionLag("orders", 0, "m-1", 7, 3, start_ms - behind_ms, behind_ms, left),
            PartitionLag("orders", 1, "m-2", 9, 0, None, 0, 0.0),
        )
        for fields in ObservedGroup("shop", start_ms + 1_000 * second, lags).events():
            about = {"source": PRODUCER} | fields
            head = {"run_id": run_id_of(PATH, run), "producer": PRODUCER}
            yield catalogue.METRICS, head | about


def run_id(start_ms: int) -> str:
    """Id of the run that `watch_events` describes."""
    return run_id_of(WATCH, start_ms // (1000 * WATCH.run_s))


def _record(
    event: WatchFigures | LifecycleEvent | Conclusion, at_ms: int
) -> tuple[str, dict[str, Any]]:
    if not isinstance(event, WatchFigures):
        return event.TOPIC, event.record(PRODUCER, at_ms)
    head = {"run_id": run_id_of(WATCH, event.run), "time": at_ms, "producer": PRODUCER}
    return event.topic, head | event.fields
