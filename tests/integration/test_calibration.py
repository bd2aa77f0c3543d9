"""The evaluator compared with a pipeline whose delays and faults are known, and after kills."""

import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from schemas import catalogue, protocol
from schemas.codec import encode_json
from schemas.commands import Drain, Prepare, Start, Stop
from schemas.events import Drained, LoadFinished, Ready
from schemas.load import Constant
from schemas.protocol import PhasePlan, RunPlan, RunRequest
from schemas.workload import (
    Content,
    Judgement,
    Phases,
    Validity,
    Workload,
)
from services.definitions.pipelines import checked_pipeline
from services.runtime.events import open_events
from services.runtime.kafka import (
    admin_client,
    assigned_consumer,
    end_offsets,
    ensure_topics,
    idempotent_producer,
)
from services.runtime.settings import ROOT
from tests.engine_plans import write_plan
from tests.integration.brute_force import judged
from tests.integration.service_process import (
    Reader,
    running_service,
    send_probes,
)
from tests.traffic import CODEC, INPUTS, TRAFFIC, output_topics

pytestmark = pytest.mark.integration

STAGES = ("ingest", "parse", "tumbling")
# For literal counts: nothing may be late.
PATIENT = Judgement(deadline_ms=10_000, give_up_ms=15_000)
# For comparison with the brute force: anything may be late.
QUICK = Judgement(deadline_ms=1_000, give_up_ms=2_500)
PHASES = Phases(warm_up_s=0, measure_s=3_600, cool_down_s=3)
# 10 sites of 2 lanes: 40 records and 10 windows per second of event time.
SITES, LANES = 10, 2
AVRO, SECONDS = Content(), dict[str, int]()


class CalibrationRun:
    """One run of a calibration pipeline. The test acts as generator and conductor."""

    def __init__(self, settings, run_id, judgement, calibration, content, windows):
        self.settings, self.run_id, self.judgement = settings, run_id, judgement
        self.content, self.windows = content, windows
        self.domain = TRAFFIC.resolved(windows)
        self.pipeline = checked_pipeline(
            {"name": f"c-{run_id}", "summary": "-", "engine": "calibration"} | calibration
        )
        self.bus = open_events(settings, "tests")
        self.start_ms = int(time.time()) * 1000
        outputs = output_topics(self.pipeline.name, STAGES, 2)
        ensure_topics(admin_client(settings, "tests"), outputs)
        self.topics = (*INPUTS, *(topic.name for topic in outputs))
        self.plan = RunPlan(request=self._request(), start_offsets=self.ends())
        self.sequence = 0
        self.readers = {
            topic: Reader(settings, topic)
            for topic in (catalogue.LIFECYCLE, catalogue.VERDICTS, catalogue.LATENCY)
        }

    def _request(self):
        workload = Workload(
            name="test",
            summary="-",
            load=Constant(rate_per_second=1),
            phases=PHASES,
            content=self.content,
            windows=self.windows,
            judgement=self.judgement,
            validity=Validity(max_clock_behind_ms=60_000),  # few probe records must suffice
        )
        return RunRequest(
            run_id=self.run_id,
            workload=workload,
            pipelines=(self.pipeline,),
            stages=STAGES,
            domain=self.domain,
        )

    def ends(self):
        consumer = assigned_consumer(self.settings, "tests-ends")
        try:
            return {topic: end_offsets(consumer, topic) for topic in self.topics}
        finally:
            consumer.close()

    @contextmanager
    def running_pipeline(self, folder):
        """The calibration process, once ready."""
        offsets, wire_format = self.plan.start_offsets, self.content.format
        plan = write_plan(
            self.settings,
            folder,
            self.run_id,
            self.pipeline,
            self.domain,
            STAGES,
            offsets,
            wire_format,
        )
        process = subprocess.Popen(
            [sys.executable, ROOT / "engines" / "python" / "engine.py", str(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout.readline() == b'{"event": "ready", "detail": {}}\n'
            yield
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.stdin.close()
            process.stdout.close()

    def begin(self, evaluators=1):
        """Prepare and start the evaluators."""
        ready = lambda events: (  # noqa: E731
            sum(e["event"] == Ready.name and not e["pipeline"] for e in events) == evaluators
        )
        self.bus.send(Prepare(run_id=self.run_id, plan=self.plan))
        send_probes(self.settings, self.run_id, self.encode)
        self.readers[catalogue.LIFECYCLE].until(self.run_id, ready)
        self.bus.send(
            Start(run_id=self.run_id, phases=PhasePlan(load_start_ms=self.start_ms, phases=PHASES))
        )

    def encode(self, name, record):
        """Encode a record in the format of the run's content."""
        if self.content.format == "json":
            return encode_json(name, record, CODEC)
        return CODEC.encode(name, record)

    def write_second(self, second):
        """Write one second of event time: all lanes of all sites, both kinds."""
        producer = idempotent_producer(self.settings, "tests-writer")
        for number in range(SITES * LANES):
            site = f"site{number // LANES}"
            fields = {
                "run_id": self.run_id,
                "measurement_id": site,
                "lane": f"lane{number % LANES}",
                "num_lanes": LANES,
                "latitude": 52.0,
                "longitude": 4.0,
                "observed_at": self.start_ms + 1000 * second,
                "period_s": 60,
                "accuracy_percent": 90,
                "scheduled_at": (self.start_ms + 1000 * second) * 1000,
            }
            for kind, values in (
                ("flow", {"flow_vehicles_per_hour": 60 * number + second}),
                ("speed", {"speed_km_per_hour": 50.0 + number}),
            ):
                record = fields | values | {"sequence": self.sequence}
                value = self.encode(f"traffic_{kind}", record)
                producer.produce(f"traffic.{kind}", value, site)
                self.sequence += 1
        assert producer.flush(10) == 0

    def drain(self, evaluators=1):
        """Drain and stop; returns when the evaluators have published everything."""
        ends = {topic: ends for topic, ends in self.ends().items() if topic in INPUTS}
        sent = self.sequence
        finished = LoadFinished(intended=sent, acknowledged=sent, failed=0, end_offsets=ends)
        self.bus.send(Drain(run_id=self.run_id, end_offsets=finished.end_offsets))
        drained = lambda events: (  # noqa: E731
            sum(e["event"] == Drained.name for e in events) == evaluators
        )
        self.readers[catalogue.LIFECYCLE].until(self.run_id, drained)
        self.bus.send(Stop(run_id=self.run_id))

    def verdicts(self):
        """Published counts by (stage, verdict)."""
        self.readers[catalogue.VERDICTS].read()
        totals = Counter()
        for event in self.readers[catalogue.VERDICTS].records(self.run_id):
            for verdict in protocol.VERDICTS:
                totals[event["stage"], verdict] += event[verdict]
        return Counter({where: count for where, count in totals.items() if count})

    def latencies(self):
        """Published counts of `latest` by (stage, latency)."""
        self.readers[catalogue.LATENCY].read()
        totals = Counter()
        for event in self.readers[catalogue.LATENCY].records(self.run_id):
            if event["definition"] == "latest":
                for latency, count in zip(event["latencies_ms"], event["counts"], strict=True):
                    totals[event["stage"], latency] += count
        return totals

    def oracle(self):
        """Expected results, from the topics."""
        deadline_ms = self.judgement.deadline_ms
        return judged(self.settings, self.run_id, self.pipeline.name, deadline_ms, self.ends())

    def close(self):
        for reader in self.readers.values():
            reader.close()


@contextmanager
def a_run(settings, run_id, folder, judgement, content=AVRO, windows=SECONDS, **calibration):
    run = CalibrationRun(settings, run_id, judgement, calibration, content, windows)
    try:
        with run.running_pipeline(folder):
            yield run
    finally:
        run.close()


def until(condition, deadline_s=90):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not in time"


def shares(settings, folder, count):
    """Environments of `count` evaluators on one machine."""
    for index in range(count):
        yield {
            "data": folder / f"evaluator-{index}",
            "TIDEGAUGE_EVALUATOR_INSTANCE_INDEX": str(index),
            "TIDEGAUGE_EVALUATOR_INSTANCE_COUNT": str(count),
            "TIDEGAUGE_EVALUATOR_WEB_PORT": str(settings.base_port + 60 + index),
        }


def test_two_evaluators_that_share_the_partitions_find_what_the_topics_imply(broker, tmp_path):
    first, second = shares(broker, tmp_path, 2)
    with (
        a_run(broker, "shared", tmp_path, QUICK, duplicate_one_in=10, drop_one_in=7) as run,
        running_service(broker, "evaluator", **first),
        running_service(broker, "evaluator", **second),
    ):
        run.begin(evaluators=2)
        for number in range(6):
            run.write_second(number)
        run.drain(evaluators=2)
        found, latencies = run.verdicts(), run.latencies()
        expected, expected_latencies = run.oracle()
        events = run.readers[catalogue.VERDICTS].records(run.run_id)
    assert {event["producer"] for event in events} == {"evaluator-0", "evaluator-1"}
    assert found == expected
    assert latencies == expected_latencies


def test_json_and_long_windows_are_evaluated_as_avro_and_seconds_are(broker, tmp_path):
    content, windows = Content(format="json"), {"tumbling_s": 2, "sliding_s": 6}
    with (
        a_run(broker, "json", tmp_path, PATIENT, content, windows, delay_ms=5) as run,
        running_service(broker, "evaluator", tmp_path),
    ):
        run.start_ms -= run.start_ms % 2_000
        run.begin()
        for second in range(4):
            run.write_second(second)
        run.drain()
        found = run.verdicts()
    # 4 s of 40 records; 2 windows of each of the 10 sites.
    assert found == {
        ("ingest", "exact"): 160,
        ("parse", "exact"): 160,
        ("tumbling", "exact"): 20,
    }


def test_totals_are_the_topics_whenever_the_evaluator_is_killed(broker, tmp_path):
    kills, seconds = 3, 12
    faults = {"duplicate_one_in": 10, "drop_one_in": 7}
    with a_run(broker, "killed", tmp_path, QUICK, delay_ms=5, **faults) as run:
        second = 0
        for number in range(kills + 1):
            with running_service(broker, "evaluator", tmp_path) as evaluator:
                if number == 0:
                    run.begin()
                before = run.verdicts().total()
                for _ in range(seconds // (kills + 1)):
                    run.write_second(second)
                    second += 1
                # Some of the latest records' verdicts have been published.
                until(lambda: run.verdicts().total() > before)  # noqa: B023
                if number < kills:
                    run.write_second(second)
                    second += 1
                    evaluator.send_signal(signal.SIGKILL)
                    evaluator.wait()
                    continue
                run.drain()
        found, latencies = run.verdicts(), run.latencies()
        expected, expected_latencies = run.oracle()
    assert found == expected
    assert latencies == expected_latencies
    assert found["parse", "missing"] > 0
    assert found["parse", "duplicate"] > 0
