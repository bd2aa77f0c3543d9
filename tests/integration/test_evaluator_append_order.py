"""Partial windows, and outputs before their inputs, on a real broker. A live evaluator that is
killed midway and a re-evaluation give the same results, which depend on LogAppendTimes alone."""

import time

import pytest

from schemas import catalogue, protocol
from schemas.commands import Prepare, Start, Stop
from schemas.events import Ready
from schemas.protocol import PhasePlan, Pipeline, RunPlan
from services.evaluator.run.reevaluation import evaluate, past_run
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import open_events, read_commands
from services.runtime.kafka import admin_client, ensure_topics
from tests.integration.hand_written import (
    PHASES,
    HandWritten,
    append_times,
    ends,
    request_of,
    write,
)
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.runs import readers
from tests.integration.service_process import has_event, running_service, send_probes
from tests.traffic import TRAFFIC, output_topics

pytestmark = pytest.mark.integration

RUN_ID, OUTPUT = "early", catalogue.output_topic("p", "tumbling")
PUBLISHES = Pipeline(
    name="p",
    summary="-",
    engine="spark",
    mode="micro-batch",
    implementation="built-in",
    incomplete_windows="publish",
)


def write_later(broker, records):
    """Write records in a later millisecond than all earlier ones."""
    begin_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 < begin_ms + 2:
        pass
    write(broker, records)


def verdict_totals(events):
    totals = dict.fromkeys(protocol.VERDICTS, 0)
    for event in events:
        for verdict in totals:
            totals[verdict] += event[verdict]
    return {verdict: count for verdict, count in totals.items() if count}


def latencies_of(events):
    found = []
    for event in events:
        if event["definition"] == "latest":
            for latency_ms, count in zip(event["latencies_ms"], event["counts"], strict=True):
                found += [latency_ms] * count
    return sorted(found)


def test_live_restarted_and_evaluated_again_agree_on_outputs_before_their_inputs(broker):
    ensure_topics(admin_client(broker, "tests"), output_topics("p", ("tumbling",)))
    bus = open_events(broker, "tests")
    request = request_of(RUN_ID)
    request = request.model_copy(update={"pipelines": (PUBLISHES,), "stages": ("tumbling",)})
    offsets = ends(broker, *TRAFFIC.topics, OUTPUT)
    run = HandWritten(RUN_ID, (int(time.time()) - 10) * 1_000)
    flow, speed = (
        ("traffic.flow", run.encoded(("b", 0, "flow"))),
        ("traffic.speed", run.encoded(("b", 0, "speed"))),
    )
    early, right = run.tumbled("b", 0, 7, 8.0), run.tumbled("b", 0, 7, 9.0)
    with readers(broker, catalogue.LIFECYCLE, catalogue.VERDICTS, catalogue.LATENCY) as (
        lifecycle,
        verdicts,
        latencies,
    ):
        with running_service(broker, "evaluator"):
            bus.send(Prepare(run_id=RUN_ID, plan=RunPlan(request=request, start_offsets=offsets)))
            send_probes(broker, RUN_ID)
            lifecycle.until(RUN_ID, has_event(Ready.name))
            bus.send(
                Start(run_id=RUN_ID, phases=PhasePlan(load_start_ms=run.start_ms, phases=PHASES))
            )
            write(broker, [(OUTPUT, early)])
            verdicts.until(RUN_ID, lambda e: verdict_totals(e) == {"unexpected": 1})
            write_later(broker, [flow])
        write_later(broker, [(OUTPUT, early)])
        write_later(broker, [speed])
        write_later(broker, [(OUTPUT, right)])
        with running_service(broker, "evaluator"):
            expected = {"unexpected": 2, "exact": 1}
            verdicts.until(RUN_ID, lambda e: verdict_totals(e) == expected)
            told = latencies.until(RUN_ID, latencies_of)
            bus.send(Stop(run_id=RUN_ID))
            commands = read_commands(broker, "tests")[0]
    times = append_times(broker, (*TRAFFIC.topics, OUTPUT))
    assert latencies_of(told) == [times[OUTPUT, right] - times["traffic.speed", speed[1]]]
    settings = EvaluatorSettings.model_validate(broker.model_dump())
    owed = evaluate(settings, past_run(commands, RUN_ID))
    assert list(owed.differences()) == []
    assert owed.counted[catalogue.VERDICTS] == 3
