"""Duration of a start, step by step, with and without class data sharing archives, alternately.

Each start is `./tidegauge run` of the workload `latency` on a separate data folder. Both kinds have
a copy of the jars. For starts without archives, the archive folder is writable by others, so it is
not used. The first start with archives, which creates them, is reported separately. A step is the
time from the command until the following is reached:

- broker: it accepts connections; asked: the services that conduct a run are ready, and the run has
  been requested;
- pipeline: all its queries are reading; outputs: every stage has published a record;
- load: the load begins; measured: the warm-up is over, and the measured phase begins;
- concluded: the verdict is on the bus; reported: the command has ended.

Settings, by environment variable: TIDEGAUGE_BENCH_ROUNDS (5), TIDEGAUGE_BENCH_PIPELINES
(spark-realtime: one), TIDEGAUGE_BENCH_WARM_UP (auto, or seconds), TIDEGAUGE_BENCH_SECONDS (30,
measured).
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.jvm import FOLDER
from services.runtime.settings import ROOT
from tests.benchmarks._measured import Measured, quotient
from tests.benchmarks.engines import Found
from tests.integration.kafka_broker import free_base_port

RUN_S = 600
WITH, WITHOUT = "with_archives", "without"
STEPS = ("broker", "asked", "pipeline", "outputs", "load", "measured", "concluded", "reported")
STEP_OF = {
    ("run_requested", ""): "asked",
    ("ready", ""): "pipeline",
    ("first_outputs", ""): "outputs",
    ("phase_started", "warm_up"): "load",
    ("phase_started", "measure"): "measured",
    ("concluded", ""): "concluded",
}
BROKER_LINE = "kafka is ready"
EVENTS = (
    "SELECT event, phase, pipeline, toUnixTimestamp64Milli(time) AS at_ms"
    " FROM tidegauge.results_lifecycle WHERE run_id = '{run_id}'"
)


@dataclass(frozen=True)
class Place:
    """Where starts of one kind run."""

    data: Path
    jars: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the commands."""
        own = {"TIDEGAUGE_DATA": str(self.data), "TIDEGAUGE_JARS": str(self.jars)}
        return os.environ | own | {"TIDEGAUGE_BASE_PORT": str(free_base_port())}


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Measure what the environment requests."""
    rounds = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "5"))
    places = {kind: place_of(scratch, kind) for kind in (WITH, WITHOUT)}
    first = start(places[WITH])
    say(f"first, makes the archives: {told(first)}")
    found = Found()
    for number in range(rounds):
        for kind in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            steps = start(places[kind])
            say(f"{kind}, round {number + 1} of {rounds}: {told(steps)}")
            for step, seconds in steps.items():
                found.note(f"{kind}_{step}_s", seconds)
    figures = found.figures()
    made = {f"first_{step}_s": seconds for step, seconds in first.items()}
    return Measured(figures | made, ratios_of(figures))


def place_of(scratch: Path, kind: str) -> Place:
    """A place with its own jars, and with archives if the kind has them."""
    place = Place(scratch / kind / "data", scratch / kind / "jars")
    # Keeps the modification times, which a JVM uses to validate its jars.
    shutil.copytree(ROOT / ".jars", place.jars, ignore=shutil.ignore_patterns(FOLDER))
    if kind == WITHOUT:
        (place.jars / FOLDER).mkdir()
        (place.jars / FOLDER).chmod(0o777)
    return place


def start(place: Place) -> dict[str, float]:
    """Seconds from the command until each step of one start. Raises RuntimeError if there was no
    report."""
    shutil.rmtree(place.data, ignore_errors=True)
    place.data.mkdir(mode=0o700, parents=True)
    report = place.data / "report.json"
    command = ["run", "latency", "--report", str(report)]
    command += ["--pipeline", os.environ.get("TIDEGAUGE_BENCH_PIPELINES", "spark-realtime")]
    command += ["--warm-up", os.environ.get("TIDEGAUGE_BENCH_WARM_UP", "auto")]
    command += ["--duration", os.environ.get("TIDEGAUGE_BENCH_SECONDS", "30")]
    environment = place.environment
    began_s, lines = time.time(), []
    with subprocess.Popen(
        [str(ROOT / "tidegauge"), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            lines = [(time.time() - began_s, line.rstrip()) for line in process.stdout]
        except BaseException:  # stop the stack before its folder is removed
            process.terminate()
            process.communicate()
            raise
    ended_s = time.time() - began_s
    if not report.exists():
        raise RuntimeError("\n".join(line for _, line in lines))
    run_id = json.loads(report.read_text())["run_id"]
    return steps_of(lines, events(environment, run_id), began_s, ended_s)


def events(environment: Mapping[str, str], run_id: str) -> list[dict[str, Any]]:
    """Events of a run on the bus."""
    sql = EVENTS.format(run_id=run_id)
    done = subprocess.run(
        [str(ROOT / "tidegauge"), "sql", sql, "--format", "JSONEachRow"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def steps_of(
    lines: Iterable[tuple[float, str]],
    heard: Iterable[Mapping[str, Any]],
    began_s: float,
    ended_s: float,
) -> dict[str, float]:
    """Seconds until each step. lines: output of the command with times; heard: events; began_s:
    epoch seconds; ended_s: until the command had ended."""
    found: dict[str, float] = {}

    def note(step: str, at_s: float) -> None:
        found[step] = max(found.get(step, 0.0), round(at_s, 3))

    for at_s, line in lines:
        if line.startswith(BROKER_LINE):
            note("broker", at_s)
    for one in heard:
        if one["event"] == "ready" and not one["pipeline"]:
            continue  # a service
        step = STEP_OF.get((one["event"], one["phase"]))
        if step is not None:
            note(step, int(one["at_ms"]) / 1000 - began_s)
    note("reported", ended_s)
    return {step: found[step] for step in STEPS if step in found}


def told(steps: Mapping[str, float]) -> str:
    """The steps in one line."""
    return ", ".join(f"{step} {seconds:.1f} s" for step, seconds in steps.items())


def ratios_of(figures: Mapping[str, float]) -> dict[str, float]:
    """Duration of each step without archives, relative to that with archives."""
    ratios: dict[str, float] = {}
    for step in STEPS:
        ours, peer = f"{WITH}_{step}_s", f"{WITHOUT}_{step}_s"
        if figures.get(ours) and peer in figures:
            ratios |= quotient(step, figures, peer, ours)
    return ratios
