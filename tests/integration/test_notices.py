"""Webhook messages of the conductor: all of them, each once, even if the receiver or the conductor
was down."""

import json
import time

import pytest

from schemas import catalogue
from schemas.commands import RequestRun
from schemas.events import PartDown, RunJudged, WatchTrouble
from services.runtime.events import open_events
from services.runtime.process import now_ms
from tests.integration.service_process import DEADLINE_S, Reader, running_service, started
from tests.receiver import receiving
from tests.unit.requests import a_request

pytestmark = pytest.mark.integration

ROW = {"threshold": "join.p99_ms <= 50", "pipeline": "p", "stage": "join", "value": 63,
       "passed": False}  # fmt: skip


def settings_for(**webhooks):
    return {
        "TIDEGAUGE_WEBHOOKS": json.dumps(webhooks),
        "TIDEGAUGE_WEBHOOK_RETRY_S": "0.1",
        "TIDEGAUGE_WEBHOOK_MOST_RETRY_S": "0.5",
        "TIDEGAUGE_PREPARE_TIMEOUT_S": "0.5",
        "TIDEGAUGE_STOP_TIMEOUT_S": "0.1",
        "TIDEGAUGE_STACK_ID": "one",
    }


def wait_until_it_tells(broker, instance, folder):
    """Wait until a conductor of that name is ready and has stored the position from which it
    reports."""
    seen = Reader(broker, catalogue.LIFECYCLE)
    seen.until("", started(instance))
    seen.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while not (folder / "notices.json").is_file():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def wait_until_noted(folder, waiting):
    """Wait until this number of messages is queued for each webhook."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        kept = json.loads((folder / "notices.json").read_text())["waiting"]
        if {name: len(each) for name, each in kept.items()} == waiting:
            return
        assert time.monotonic() < deadline_s, kept
        time.sleep(0.05)


def test_each_thing_is_told_once_in_every_shape_also_after_the_receiver_was_away(broker, tmp_path):
    bus = open_events(broker, "test-notices")
    with receiving() as here, receiving() as away:
        port = away.server_port
        variables = settings_for(
            plain={"url": here.url},
            slack={"url": here.url, "shape": "slack", "on": ["part_down"]},
            gone={"url": away.url, "shape": "teams"},
        )
        away.shutdown()
        away.server_close()
        with running_service(
            broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE="notices-1", **variables
        ) as conductor:
            wait_until_it_tells(broker, "notices-1", tmp_path)
            bus.publish(PartDown(part="store", reason="exit code 7", restart=1))
            plain, slack = here.wait_for(2)
            if "text" in plain:
                plain, slack = slack, plain
            assert (plain["kinds"], plain["title"]) == (["part_down"], "store died")
            assert slack == {"text": "*store died*\n• exit code 7\n• It is restarted."}
            # A kill between a response and its note would cause a repetition with the same id.
            wait_until_noted(tmp_path, {"plain": 0, "slack": 0, "gone": 1})
            conductor.kill()
            conductor.wait()
        bus.publish(RunJudged(run_id="slow-1", clean=True, verdicts={}, thresholds=(ROW,)))
        with running_service(
            broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE="notices-2", **variables
        ):
            found = here.wait_for(3)
            assert found[2]["title"] == "slow-1: a threshold failed"
            assert found[2]["lines"] == ["failed: join.p99_ms <= 50; p join has 63"]
            with receiving(port) as back:
                cards = [body["attachments"][0]["content"]["body"] for body in back.wait_for(2)]
            titles = [card[0]["inlines"][0]["text"] for card in cards]
            assert titles == ["store died", "slow-1: a threshold failed"]
            late = ("It was late.",)
            bus.publish(RunJudged(run_id="slow-2", invalid_reasons=late, clean=True))
            assert here.wait_for(4)[3]["title"] == "slow-2: INVALID"
            assert len(here.bodies) == 4  # no duplicates
            assert back.bodies == back.wait_for(2)


def test_a_run_that_cannot_take_place_is_told_with_its_reason(broker, tmp_path):
    bus = open_events(broker, "test-notices")
    request = a_request().model_copy(update={"run_id": "notices-run"})
    with receiving() as here:
        variables = settings_for(plain={"url": here.url})
        with running_service(
            broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE="notices-3", **variables
        ):
            wait_until_it_tells(broker, "notices-3", tmp_path)
            bus.send(RequestRun(run_id=request.run_id, request=request))
            (body,) = here.wait_for(1)
    assert body["title"] == "latency on spark-realtime: INVALID"
    assert body["lines"][0].startswith("After 0 s not ready: ")
    assert body["run_id"] == "notices-run"


def test_a_lasting_problem_of_a_watch_is_told_once_though_the_conductor_is_killed(broker, tmp_path):
    why, run_id = "The topic shipped was deleted.", "watch-orders-20260520-200000-6f"
    bus, at_ms = open_events(broker, "test-notices"), now_ms()
    bus._clock = lambda: at_ms  # within one hour
    deleted = {"kind": "topic_deleted", "watch": "orders", "topic": "shipped", "invalid": why}
    refused = {"kind": "undecodable", "watch": "orders", "topic": "orders", "invalid": ""}
    refused |= {"reason": "not JSON", "records": 2, "partition": 0, "offset": 7}
    concluded = {"clean": True, "verdicts": {}, "watch": {"inputs": 9}, "thresholds": [ROW]}
    with receiving() as here:
        variables = settings_for(plain={"url": here.url})
        for number in range(2):
            name = f"notices-watch-{number}"
            with running_service(
                broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE=name, **variables
            ) as conductor:
                wait_until_it_tells(broker, name, tmp_path)
                for detail in (deleted, refused):
                    bus.publish(WatchTrouble(run_id=run_id, **detail))
                if number == 0:
                    here.wait_for(2)
                    wait_until_noted(tmp_path, {"plain": 0})
                    conductor.kill()
                    conductor.wait()
                    continue
                bus.publish(RunJudged(run_id=run_id, invalid_reasons=(why,), **concluded))
                told = here.wait_for(3)
    assert [(one["kinds"], one["title"]) for one in told] == [
        (["invalid"], f"{run_id}: INVALID"),
        (["watch_trouble"], "watch orders: records of orders are not judged"),
        (["threshold"], f"{run_id}: a threshold failed"),
    ]


def test_silence_and_its_end_are_told_once_each(broker, tmp_path):
    bus = open_events(broker, "test-notices")
    with receiving() as here:
        variables = settings_for(plain={"url": here.url, "on": ["no_results"]})
        variables["TIDEGAUGE_NO_RESULTS_MINUTES"] = "0.05"
        with running_service(
            broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE="notices-4", **variables
        ):
            wait_until_it_tells(broker, "notices-4", tmp_path)
            (silent,) = here.wait_for(1)
            assert silent["title"] == "No results for 0.05 minutes"
            bus.publish_figures(
                catalogue.LATENCY, "any-run", pipeline="p", stage="join", definition="latest",
                second=1000, phase="measure", latencies_ms=[3], counts=[1],
            )  # fmt: skip
            bus.flush()
            assert here.wait_for(2)[1]["title"].startswith("Results have resumed")
