"""External programs: how they are started, what they receive, how they end."""

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from schemas.engine import EnginePlan
from schemas.pipeline import Pipeline
from schemas.validation_errors import DefinitionError
from services.definitions.engines import Installed, load_engine
from services.definitions.pipelines import checked_pipeline, load_pipeline
from services.external_pipeline.__main__ import start, variables, watch
from services.runner.processes import environment
from services.runtime.settings import ROOT
from tests.traffic import TRAFFIC
from tests.unit.requests import RUN_ID

pytestmark = pytest.mark.unit


def external(name: str, *command: str) -> Pipeline:
    return checked_pipeline(
        {"name": name, "summary": "-", "engine": "external", "command": command}
    )


def a_plan(pipeline: Pipeline, **fields: object) -> EnginePlan:
    given: dict[str, object] = {
        "run_id": RUN_ID,
        "pipeline": pipeline,
        "domain": TRAFFIC,
        "outputs": {"ingest": "output.mine.ingest", "parse": "output.mine.parse"},
        "start_offsets": {"traffic.flow": (7, 8), "traffic.speed": (9, 0)},
        "bootstrap": "broker:9092",
        "group": "engine.a.r1",
        "warm_up_s": 0,
        "deadline_ms": 10_000,
        "folder": "/data/runs/r/mine",
    }
    return EnginePlan.model_validate(given | fields)


def write(folder: Path, name: str, command: str) -> None:
    text = f'name = "{name}"\nsummary = "-"\nengine = "external"\n{command}\n'
    (folder / f"{name}.toml").write_text(text)


def test_a_name_is_enough_for_a_program_that_runs_already(tmp_path: Path) -> None:
    found = load_pipeline("external:flink", tmp_path)
    assert (found.name, found.engine, found.settings) == ("flink", "external", {"command": ()})
    assert found.stages == ()
    write(tmp_path, "flink", 'command = ["flink", "run"]')
    assert load_pipeline("external:flink", tmp_path).settings == {"command": ("flink", "run")}
    with pytest.raises(DefinitionError, match="external:No Name"):
        load_pipeline("external:No Name", tmp_path)


def test_an_external_program_cannot_have_the_name_of_another_pipeline() -> None:
    with pytest.raises(DefinitionError, match=r"pipelines/flink\.toml is a pipeline of"):
        load_pipeline("external:flink")


def test_an_external_pipeline_may_publish_or_withhold_incomplete_windows() -> None:
    for kept in ("publish", "withhold"):
        fields = {"name": "a", "summary": "-", "engine": "external", "incomplete_windows": kept}
        assert checked_pipeline(fields).incomplete_windows == kept


def test_the_program_is_told_what_to_read_and_where_to_write() -> None:
    assert variables(a_plan(external("mine")), Path("/data/mine.plan.json")) == {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": "broker:9092",
        "TIDEGAUGE_STAGES": "ingest,parse",
        "TIDEGAUGE_OUTPUT": "output.mine.",
        "TIDEGAUGE_RUN_ID": RUN_ID,
        "TIDEGAUGE_START_OFFSETS": '{"traffic.flow": [7, 8], "traffic.speed": [9, 0]}',
        "TIDEGAUGE_PLAN": "/data/mine.plan.json",
    }
    told = variables(a_plan(external("mine"), properties={"sasl.password": "y"}), Path("x"))
    assert told["TIDEGAUGE_KAFKA_PROPERTIES"] == '{"sasl.password": "y"}'


def test_of_our_own_environment_a_program_gets_what_it_needs_to_run() -> None:
    given = {
        "HOME": "/home/x",
        "LC_ALL": "C.UTF-8",
        "https_proxy": "http://proxy:3128",
        "TIDEGAUGE_STACK_ID": "abc",
        "TIDEGAUGE_SPARK_CONF": '{"a.secret": "x"}',
        "TIDEGAUGE_KAFKA_PROPERTIES": '{"sasl.password": "x"}',
        "AWS_SECRET_ACCESS_KEY": "x",
        "LD_PRELOAD": "/tmp/x.so",
    }
    for name in ("external", "calibration"):
        told = environment(Installed(load_engine(name), Path("/none")), given)
        assert set(told) == {"HOME", "LC_ALL", "https_proxy", "TIDEGAUGE_STACK_ID", "PATH"}
        assert told["PATH"].startswith(str(Path(sys.executable).parent))
    # Spark's environment has the user's own secrets, for the storage that it writes to.
    assert set(given) < set(environment(Installed(load_engine("spark"), Path("/none")), given))


def test_the_program_is_stopped_when_the_run_is() -> None:
    program = "import signal; signal.pause()"
    process = start([sys.executable, "-c", program], {})
    stop = threading.Event()
    stop.set()
    assert watch(process, stop) is None
    assert process.returncode == -15


def test_a_program_that_ends_by_itself_is_noticed() -> None:
    process = start([sys.executable, "-c", "raise SystemExit(5)"], {})
    assert watch(process, threading.Event()) == 5
    stop = threading.Event()
    stop.set()
    assert watch(None, stop) is None


PROGRAM = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("leads_its_group", [True, False])
def test_the_program_ends_when_the_agent_is_gone(tmp_path: Path, leads_its_group: bool) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(a_plan(external("mine", sys.executable, "-c", PROGRAM)).model_dump_json())
    wrapper = subprocess.Popen(
        [sys.executable, "-m", "services.external_pipeline", str(plan)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=leads_its_group,
    )
    assert wrapper.stdin is not None
    assert wrapper.stdout is not None
    said = [wrapper.stdout.readline(), wrapper.stdout.readline()]
    said.remove(b'{"event": "ready"}\n')
    program, child = (psutil.Process(int(pid)) for pid in said[0].split())
    try:
        wrapper.stdin.close()  # as when the agent that holds it is killed
        assert wrapper.wait(10) == -9
        for process in (program, child) if leads_its_group else (program,):
            assert ends(process), process
    finally:
        for process in (program, child):
            if process.is_running():
                process.kill()
        wrapper.stdout.close()


def ends(process: psutil.Process) -> bool:
    """Whether it exits within 10 s; a zombie that init has not reaped yet counts as exited."""
    deadline_s = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.02)
    return True
