"""Watches of a Spark pipeline that was not made for Tidegauge, compared with a brute force."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from deploy.local.java import find_java
from services.definitions.watches import keep_watch
from services.runtime.settings import ROOT
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.service_process import running_service
from tests.integration.watched_bus import a_watch, await_conclusion
from tests.integration.watched_pipeline import (
    Load,
    as_json,
    brute_force,
    by_run,
    everything,
    flat,
    identified,
    make_topics,
    told_by,
)
from tests.unit.watcher.one_by_one import windows_of

pytestmark = pytest.mark.engines

PROGRAM = ROOT / "tests" / "engines" / "watched_spark.py"
PAYMENTS, PER_SECOND = 6_000, 400
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RELATION = {"deadline_ms": 3_000, "give_up_ms": 8_000, "remember_ms": 20_000}
JSON_OF = {"format": "json", "identity": ["value.id"]}


def payment(number):
    """A payment with some amount at the next instant; some are two seconds late."""
    at = BEGIN + timedelta(milliseconds=2.5 * number)
    if number % 50 == 0:
        at -= timedelta(seconds=2)
    fields = {"id": number, "shop": f"shop-{number % 7}", "amount": number % 100}
    yield "payments", f"shop-{number % 7}", as_json(**fields, paid_at=at.isoformat()), None


def microseconds(text):
    return round((datetime.fromisoformat(text) - BEGIN) / timedelta(microseconds=1))


def id_of(message):
    return str(json.loads(message.value())["id"])


def shop_and_time(message):
    return message.key(), microseconds(json.loads(message.value())["paid_at"])


def shop_and_window(message):
    window = json.loads(message.value())["window"]
    return message.key(), microseconds(window["start"]), microseconds(window["end"])


@contextmanager
def spark(bootstrap, folder):
    """Run the pipeline in its own process."""
    java = find_java(ROOT / ".jars").home
    with (folder / "spark.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, PROGRAM, bootstrap, ROOT / ".jars" / "spark", folder / "checkpoints"],
            env=os.environ | {"JAVA_HOME": str(java)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_output(process, bootstrap, topic, is_enough):
    """Wait until a topic has enough records."""
    end_s = time.monotonic() + 120
    while not is_enough(everything(bootstrap, topic)):
        assert process.poll() is None, "the pipeline has ended"
        assert time.monotonic() < end_s, f"{topic}: {len(everything(bootstrap, topic))} records"
        time.sleep(0.3)  # poll interval


def test_a_filter_and_windows_of_spark_are_judged_as_by_hand(broker, tmp_path):
    make_topics(broker.bootstrap, payments=2, large=2, sums=1)
    large = a_watch(
        broker,
        "large",
        inputs=[{"topic": "payments", **JSON_OF}],
        outputs=[{"topic": "large", **JSON_OF}],
        relation={"kind": "filter", **RELATION},
    )
    windows = {"format": "json", "time_format": "iso"}
    sums = a_watch(
        broker,
        "sums",
        inputs=[{"topic": "payments", "time": "value.paid_at", **windows}],
        outputs=[
            {"topic": "sums", "start": "value.window.start", "end": "value.window.end", **windows}
        ],
        relation={"kind": "window", **RELATION},
    )
    for watch in (large, sums):
        keep_watch(tmp_path, watch)
    with (
        running_service(broker, "watcher", tmp_path),
        spark(broker.bootstrap, tmp_path) as process,
    ):
        Load(broker.bootstrap, payment, 100, PER_SECOND).start()
        await_output(process, broker.bootstrap, "large", lambda found: len(found) >= 50)
        load = Load(broker.bootstrap, payment, PAYMENTS, PER_SECOND, first=100)
        load.start()
        load.join()
        wanted = sum(number % 100 >= 50 for number in range(PAYMENTS + 100))
        await_output(process, broker.bootstrap, "large", lambda found: len(found) >= wanted)
        await_output(process, broker.bootstrap, "sums", lambda found: len(found) >= 12 * 7)
        process.kill()
        inputs = identified(broker.bootstrap, ["payments"], id_of)
        outputs = identified(broker.bootstrap, ["large"], id_of)
        paid = identified(broker.bootstrap, ["payments"], shop_and_time)
        summed = identified(broker.bootstrap, ["sums"], shop_and_window)
        last_ms = max(ms for _, ms in (*inputs, *outputs, *summed))
        for watch in (large, sums):
            records = await_conclusion(broker, watch, last_ms)
    assert told_by(records, large) == brute_force(large, inputs, outputs)
    expected = by_run(sums, windows_of(flat(paid), flat(summed), sums.relation))
    assert told_by(records, sums) == expected
    verdicts = sum(expected[1].values(), Counter())
    assert verdicts["missing"] >= 100  # too late for their window, or in the last one
    assert verdicts["exact"] + verdicts["late"] >= 12 * 7
