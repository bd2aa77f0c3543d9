"""A run in which the evaluator is killed five times: the stack keeps running, and no figure
changes."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.local.stack import Stack
from schemas import catalogue, codec, protocol
from schemas.events import EvaluationResumed, PhaseStarted
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import CommandLine
from tests.end_to_end.implied import judged_by_brute_force
from tests.end_to_end.workload_files import NEVER_LATE, changed_workload
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import Reader

pytestmark = [pytest.mark.end_to_end, pytest.mark.faults]

BASE_PORT = free_base_port()
# Long enough for five restarts, the last of which is delayed by 8 s, even on a busy machine.
KILLS, MEASURE_S, RATE = 5, 90, 70
STAGES = ("ingest", "parse", "tumbling")
PIPELINE = """
name = "lossy"
summary = "-"
engine = "calibration"
stages = ["ingest", "parse", "tumbling"]
delay_ms = 5
drop_one_in = 7
duplicate_one_in = 10
"""


def evaluator_pid(stack):
    """The evaluator's process id, once it is ready."""
    found = [s for s in stack.status().services if s.name == "evaluator" and s.state == "ready"]
    return found[0].pid if found else None


def kill_again_and_again(settings):
    """Kill the evaluator repeatedly, each time once it has resumed the run and published more."""
    stack = Stack(settings)
    lifecycle, verdicts = (
        Reader(settings, catalogue.LIFECYCLE),
        Reader(settings, catalogue.VERDICTS),
    )
    deadline = time.monotonic() + 240

    def until(condition):
        while not condition():
            assert time.monotonic() < deadline, "the run did not go on in time"
            lifecycle.read()
            verdicts.read()

    def events(name):
        every = [one for one in lifecycle.records(run_id) if one["event"] == name]
        return [one for one in every if name != PhaseStarted.name or one["phase"] == "measure"]

    try:
        runs = lambda: [r["run_id"] for r in decoded(lifecycle) if r["run_id"]]  # noqa: E731
        until(runs)
        run_id = runs()[-1]
        until(lambda: events(PhaseStarted.name))
        for kill in range(KILLS):
            until(lambda: len(events(EvaluationResumed.name)) == kill)  # noqa: B023
            known = len(verdicts.records(run_id))
            until(lambda: len(verdicts.records(run_id)) > known)  # noqa: B023
            until(lambda: evaluator_pid(stack))
            os.kill(evaluator_pid(stack), signal.SIGKILL)
        until(lambda: len(events(EvaluationResumed.name)) == KILLS)
    finally:
        lifecycle.close()
        verdicts.close()


def decoded(reader):
    """Every record of a topic so far, decoded."""
    return [codec.decode(message.value())[1] for message in reader.messages]


def test_a_run_whose_evaluator_is_killed_five_times_has_the_totals_of_its_topics(tmp_path):
    tidegauge = CommandLine(tmp_path, BASE_PORT)
    settings = ServiceSettings(base_port=BASE_PORT, data=tmp_path)
    pipeline, path = tmp_path / "lossy.toml", tmp_path / "report.json"
    pipeline.write_text(PIPELINE)
    workload = changed_workload("latency", tmp_path / "never-late.toml", NEVER_LATE)
    with tidegauge.stack():
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(
                tidegauge,
                *("run", str(workload), "--pipeline", str(pipeline), "--stages", "0,1,3"),
                *("--rate", str(RATE), "--warm-up", "1", "--duration", str(MEASURE_S)),
                *("--report", str(path)),
            )
            kill_again_and_again(settings)
            done = run.result()
        assert done.returncode == 1, done.stdout + done.stderr  # the ledger is not clean
        report = json.loads(path.read_text())
        assert (report["valid"], report["invalid_reasons"]) == (True, [])
        implied = judged_by_brute_force(settings, report["run_id"], ("lossy",), 10_000)
    expected, latencies = implied["lossy"]
    assert expected["parse", "missing"] > 0
    for stage in STAGES:
        cell = report["pipelines"]["lossy"]["stages"][stage]
        assert {name: cell["verdicts"][name] for name in protocol.VERDICTS} == {
            name: expected[stage, name] for name in protocol.VERDICTS
        }
        every = sorted(ms for (of, ms), n in latencies.items() for _ in range(n) if of == stage)
        latest = cell["latency_ms"]["latest"]
        assert (latest["count"], latest["max"]) == (len(every), every[-1])
        assert latest["p50"] == every[-(-len(every) // 2) - 1]
    assert report["conclusion"]["evaluator_restarts"] == KILLS
    assert "The evaluator was restarted 5 times" in done.stdout
