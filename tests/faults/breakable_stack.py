"""A whole stack whose parts a test kills and pauses, and its status meanwhile."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException, TopicPartition

from deploy.local.stack import ServiceStatus, Stack
from schemas import catalogue
from services.runtime.clickhouse import QueryError, query, store_url
from services.runtime.kafka import NoTopicError, assigned_consumer, ends_of, watermarks
from services.runtime.program import pipeline_of, proxied_by
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import ROOT, CommandLine
from tests.end_to_end.implied import judged_by_brute_force
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import Reader
from tests.traffic import INPUTS

DEADLINE_S = 400
PIPELINE = "calibration"
STAGES = ("ingest", "parse", "tumbling")
DEADLINE_MS = 60_000
# A restart budget that many kills do not exhaust, without increasing delays.
GENEROUS = {"TIDEGAUGE_MAX_RESTARTS": "50", "TIDEGAUGE_RESTART_WINDOW_S": "1"}
# Retention is off, so rows remain whatever their times are.
KINDS = ("LATENCY", "PROGRESS", "IDLE_RESOURCES", "DEAD_LETTER", "PAIRS", "METRICS", "SLICES")
FOR_EVER = {f"TIDEGAUGE_KEEP_{kind}_DAYS": "0" for kind in KINDS}
# Topics whose events become several rows.
SEVERAL_ROWS = (catalogue.LATENCY, catalogue.PAIRS, catalogue.METRICS, catalogue.SLICES)
# Only the fault itself may make a run INVALID or an output late, however busy the machine is.
WORKLOAD = """
name = "{name}"
summary = "-"
stages = ["ingest", "parse", "tumbling"]
pipelines = ["calibration"]
keep_up_s = 4
[load]
shape = "constant"
rate_per_second = {rate}
[phases]
warm_up_s = 2
measure_s = {measure_s}
cool_down_s = 3
[judgement]
deadline_ms = {deadline_ms}
give_up_ms = 60_000
[validity]
max_send_delay_p99_ms = {late_ms}
max_clock_ahead_ms = 1_000
max_clock_behind_ms = 30_000
"""

Report = dict[str, Any]


class BreakableStack:
    """A running stack and its parts. `begin_load` runs a load in another process."""

    def __init__(self, data: Path) -> None:
        self.settings = ServiceSettings(data=data, base_port=free_base_port())
        self.tidegauge = CommandLine(data, self.settings.base_port)

    def start(self, **environment: str) -> None:
        """Start it with a restart budget that tests do not exhaust."""
        done = self.tidegauge("up", "--detach", **GENEROUS | environment)
        assert done.returncode == 0, done.stderr

    def services(self) -> dict[str, dict[str, object]]:
        """State of every part, by name."""
        return {service.name: asdict(service) for service in self._status()}

    def restarts(self) -> dict[str, int]:
        """Number of restarts of each part."""
        return {service.name: service.restarts for service in self._status()}

    def is_ready(self) -> bool:
        """Whether every part is ready."""
        return {service.state for service in self._status()} == {"ready"}

    def processes(self, name: str) -> list[psutil.Process]:
        """The process of a part, or of the run's only pipeline: its driver or its proxy."""
        part = "runner" if name in ("driver", "proxy") else name
        found = [psutil.Process(one.pid) for one in self._status() if one.name == part]
        if name == "driver":
            return [one for one in found[0].children() if pipeline_of(one.cmdline())]
        if name == "proxy":
            return [one for one in found[0].children() if proxied_by(one.cmdline())]
        return found

    def kill(self, name: str) -> None:
        """Kill a part with SIGKILL."""
        (process,) = self.processes(name)
        process.send_signal(signal.SIGKILL)

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Pause its process (SIGSTOP) while the block runs."""
        (process,) = self.processes(name)
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def begin_load(
        self, pipeline: str = PIPELINE, *options: str, **differently: object
    ) -> "subprocess.Popen[str]":
        """Start a run of WORKLOAD on the calibration pipeline, by default at 100 records/s for 15
        s. Its report is written to `report_path`. options: further ones of the command."""
        usual = {"rate": 100, "measure_s": 15, "deadline_ms": DEADLINE_MS, "late_ms": 60_000}
        path = self.settings.data / "broken.toml"
        path.write_text(WORKLOAD.format(name="broken", **usual | differently))
        self.report_path.unlink(missing_ok=True)
        environment = os.environ | {
            "TIDEGAUGE_DATA": str(self.settings.data),
            "TIDEGAUGE_BASE_PORT": str(self.settings.base_port),
        }
        command = [str(ROOT / "tidegauge"), "run", str(path), "--pipeline", pipeline]
        command += ["--report", str(self.report_path), *options]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    @property
    def report_path(self) -> Path:
        """Path of the newest run's report, which is written when the run ends."""
        return self.settings.data / "report.json"

    def ended(self, run: "subprocess.Popen[str]") -> tuple[int, Report, str]:
        """Wait for a run; returns exit code, report and output."""
        output, errors = run.communicate(timeout=2 * DEADLINE_S)
        said = output + errors
        assert self.report_path.exists(), said
        return run.returncode, json.loads(self.report_path.read_text()), said

    def ended_clean(self, run: "subprocess.Popen[str]") -> Report:
        """Wait for a run, which must be valid and clean; returns its report."""
        code, report, said = self.ended(run)
        assert (code, report["valid"], report["invalid_reasons"]) == (0, True, []), said
        assert report["conclusion"]["clean"], said
        return report

    def has_clean_run(self) -> Report:
        """Do a short run, which must be valid and clean; returns its report."""
        return self.ended_clean(self.begin_load(measure_s=5))

    def sql(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query; none while the store is unavailable."""
        try:
            return query(store_url(self.settings), sql)
        except QueryError:
            return []

    def phase(self) -> str:
        """Phase of the newest run."""
        rows = self.sql("SELECT phase FROM runs ORDER BY requested_at DESC LIMIT 1")
        return str(rows[0]["phase"]) if rows else ""

    def await_measuring(self) -> None:
        """Wait until outputs of the measure phase of the running run are counted."""
        eventually(lambda: self.phase() == "measure", "the load goes on")
        newest = "SELECT argMax(run_id, requested_at) FROM runs"
        seen = (
            f"SELECT 1 FROM results_latency WHERE phase = 'measure' AND run_id = ({newest}) LIMIT 1"
        )
        eventually(lambda: self.sql(seen), "outputs are measured")

    def ends(self, *topics: str) -> dict[str, int]:
        """End offset of each topic, all of which have one partition; 0 if it does not exist yet.
        Topics of a domain are created by its first run."""
        consumer = assigned_consumer(self.settings, "tests")
        try:
            return {topic: end for (topic, _), end in ends_of(consumer, topics).items()}
        except NoTopicError:
            return dict.fromkeys(topics, 0)
        finally:
            consumer.close()

    def let_pass(self, seconds: float) -> None:
        """Wait until this time has passed for the running parts, by LogAppendTime of the
        collector's events of every second."""
        consumer = assigned_consumer(self.settings, "tests")
        try:
            until_ms = int(1000 * (time.time() + seconds))
            asked = [TopicPartition(catalogue.RESOURCES, 0, until_ms)]
            appended = lambda: consumer.offsets_for_times(asked, 10)[0].offset >= 0  # noqa: E731
            eventually(appended, f"{seconds:g} s pass")
        finally:
            consumer.close()

    def _status(self) -> tuple[ServiceStatus, ...]:
        return Stack(self.settings).status().services


@contextmanager
def breakable_stack(data: Path, **environment: str) -> Iterator[BreakableStack]:
    """A stack that is up while the block runs."""
    stack = BreakableStack(data)
    try:
        stack.start(**environment)
        yield stack
    finally:
        stack.tidegauge("down")


def eventually(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition. It may raise meanwhile because a broker is down."""
    deadline = time.monotonic() + deadline_s
    while not _holds(condition):
        assert time.monotonic() < deadline, f"in vain: {what}"
        threading.Event().wait(0.1)


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except KafkaException:
        return False


def nothing_twice(stack: BreakableStack, report: Report, deadline_ms: int = DEADLINE_MS) -> None:
    """Assert that every input of a run is on the bus once, and that every counted output exists and
    was counted once; if the run is valid, also that every output was counted."""
    sent = sequences(stack, report["run_id"])
    assert set(sent.values()) <= {1}, [one for one, times in sent.items() if times > 1]
    stages = report["pipelines"][PIPELINE]["stages"]
    counted = Counter(
        {
            (stage, verdict): n
            for stage in STAGES
            for verdict, n in stages[stage]["verdicts"].items()
        }
    )
    if not +counted and not report["valid"]:
        return
    implied = judged_by_brute_force(stack.settings, report["run_id"], (PIPELINE,), deadline_ms)
    verdicts, latencies = implied[PIPELINE]
    timed = {
        stage: stages[stage]["latency_ms"].get("latest", {}).get("count", 0) for stage in STAGES
    }
    there = {stage: sum(n for (of, _), n in latencies.items() if of == stage) for stage in STAGES}
    if report["valid"]:
        assert +counted == verdicts
        assert timed == there
    for stage in STAGES:
        assert timed[stage] <= there[stage], stage
        assert counted[stage, "duplicate"] <= verdicts[stage, "duplicate"], stage


def sequences(stack: BreakableStack, run_id: str) -> Counter[int]:
    """Sequence numbers of a run in the input topics, and how often each occurs."""
    found: Counter[int] = Counter()
    for topic in INPUTS:
        reader = Reader(stack.settings, topic)
        try:
            found.update(record["sequence"] for record in reader.everything(run_id))
        finally:
            reader.close()
    return found


def on_the_bus(settings: ServiceSettings) -> dict[str, int]:
    """Number of records of each results topic."""
    consumer = assigned_consumer(settings, "tests")
    try:
        found = {t: watermarks(consumer, TopicPartition(t, 0)) for t in catalogue.RESULTS}
        return {topic: end - low for topic, (low, end) in found.items()}
    finally:
        consumer.close()


def every_event_once(stack: BreakableStack) -> None:
    """Assert that a rebuild gives the same projection, and that each event on the bus is in it
    once, or a dead letter, or both if it can be decoded but is incomplete."""
    rebuilt = stack.tidegauge("rebuild")  # 0 only if every table has the same rows as before
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    for topic, events in on_the_bus(stack.settings).items():
        rows = f"SELECT _offset FROM {catalogue.record_of(topic)} WHERE _offset < {events}"
        put_aside = f"SELECT `offset` AS _offset FROM dead_letter WHERE topic = '{topic}'"
        sql = (
            f"SELECT count() AS n, uniqExact(_offset) AS events,"
            f" (SELECT uniqExact(_offset) FROM ({rows} UNION ALL {put_aside})) AS known"
            f" FROM ({rows})"
        )
        eventually(
            lambda sql=sql, events=events: any(row["known"] == events for row in stack.sql(sql)),
            f"all events of {topic} are rows",
        )
        (found,) = stack.sql(sql)
        several = topic in SEVERAL_ROWS
        assert found["n"] >= found["events"] if several else found["n"] == found["events"], topic
