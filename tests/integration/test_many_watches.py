"""Many watches in few processes, of a real cluster: each finds what was planted in its topics,
though one of them is broken and their process is killed."""

import time
import urllib.request
from collections import Counter
from contextlib import suppress

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.definitions.watches import keep_watch
from services.watcher.seats import OWN
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.service_process import running_service
from tests.integration.watched_bus import a_watch, await_that, concluded, troubles
from tests.integration.watched_pipeline import (
    Load,
    brute_force,
    identified,
    make_topics,
    told_by,
)

pytestmark = pytest.mark.integration
MANY = 20
DEADLINE_S = 400
BROKEN = "w12"
# So long that a busy machine loses no output: records of two topics are sent side by side.
RELATION = {"deadline_ms": 15_000, "give_up_ms": 20_000, "remember_ms": 40_000}
NAMES = [f"w{number:02}" for number in range(MANY)]
LOSING = {name for number, name in enumerate(NAMES) if number % 3 == 0}
REPEATING = {name for number, name in enumerate(NAMES) if number % 3 == 1}


def shared_process(service, other_than=0):
    """The process that watches share."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        for child in psutil.Process(service.pid).children():
            with suppress(psutil.Error):  # such as a killed process
                if "services.watcher.hosting" in child.cmdline() and child.pid != other_than:
                    return child
        time.sleep(0.05)
    raise AssertionError("there is no shared process")


def record(number):
    """The records of all pipelines: one loses each fifth, another repeats each seventh."""
    key = b"%d" % number
    for name in NAMES:
        yield f"{name}-in", key, b"", None
        if name == BROKEN or (name in LOSING and number % 5 == 0):
            continue
        yield f"{name}-out", key, b"", None
        if name in REPEATING and number % 7 == 0:
            yield f"{name}-out", key, b"", None


def test_each_of_many_finds_what_was_planted_though_one_is_broken_and_all_are_killed(
    broker, tmp_path
):
    sides = [f"{name}-{side}" for name in NAMES for side in ("in", "out")]
    make_topics(broker.bootstrap, **{side: 1 for side in sides if side != f"{BROKEN}-out"})
    watches = {
        name: a_watch(
            broker,
            name,
            inputs=[{"topic": f"{name}-in"}],
            outputs=[{"topic": f"{name}-out"}],
            run_s=30,
            relation=RELATION,
        )
        for name in NAMES
    }
    for watch in watches.values():
        keep_watch(tmp_path, watch)
    well = [watch for name, watch in watches.items() if name != BROKEN]
    load = Load(broker.bootstrap, record, count=600, per_second=10)

    def have_paired(records, count):
        told = [told_by(records, watch)[0] for watch in well]
        return all(sum(map(Counter.total, each.values())) >= count for each in told)

    with running_service(broker, "watcher", tmp_path) as service:
        shared = shared_process(service)
        load.start()
        await_that(broker, lambda records: have_paired(records, 50), DEADLINE_S)
        shared.kill()
        shared_process(service, other_than=shared.pid)
        load.join()
        inputs, outputs = (
            {
                watch.name: identified(broker.bootstrap, [side[0].topic], lambda m: m.key())
                for watch in well
                for side in (watch.inputs if is_input else watch.outputs,)
            }
            for is_input in (True, False)
        )
        last_ms = max(ms for side in (inputs, outputs) for of in side.values() for _, ms in of)
        last = last_ms // 30_000
        records = await_that(
            broker,
            lambda records: all(last in concluded(records, watch) for watch in well),
            DEADLINE_S,
        )
        processes = of_processes(broker)
    for watch in well:
        expected = brute_force(watch, inputs[watch.name], outputs[watch.name])
        assert told_by(records, watch) == expected
        totals = sum(expected[1].values(), Counter())
        lost = 120 if watch.name in LOSING else 0
        repeated = 86 if watch.name in REPEATING else 0
        in_all = totals.pop("exact") + totals.pop("late", 0)  # a busy machine may send one late
        assert (in_all, +totals) == (600 - lost, +Counter(missing=lost, duplicate=repeated))
    ended = troubles(records, "ended")
    assert {each["watch"] for each in ended if each["code"] == 1} == {BROKEN}
    assert f"topic {BROKEN}-out does not exist" in {each["reason"] for each in ended}
    killed = {each["watch"] for each in ended if each["code"] == -9}
    assert killed | {BROKEN} == {*NAMES[OWN:]}
    assert processes == {**dict.fromkeys(NAMES[:OWN], 1), "shared-2": MANY - OWN - 1}


def of_processes(broker):
    """How many watches each process of the watcher has."""
    address = f"http://127.0.0.1:{broker.port('watcher')}/metrics"
    text = urllib.request.urlopen(address, timeout=90).read().decode()
    return {
        sample.labels["process"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "tidegauge_watch_process_watches"
    }
