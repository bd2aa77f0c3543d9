"""Programs that are no part of Tidegauge: what is started, what they are told, how they end."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from schemas.pipeline import External, Pipeline
from schemas.protocol import RunPlan
from services.external_pipeline.__main__ import (
    environment,
    start,
    watch,
)
from services.runtime.definitions import DefinitionError, load_pipeline
from services.runtime.settings import ROOT, ServiceSettings
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit


def external(name: str, *command: str) -> Pipeline:
    return Pipeline(name=name, summary="-", mode="external", external=External(command=command))


def write(folder: Path, name: str, command: str) -> None:
    text = f'name = "{name}"\nsummary = "-"\nmode = "external"\n[external]\n{command}\n'
    (folder / f"{name}.toml").write_text(text)


def test_a_name_is_enough_for_a_program_that_runs_already(tmp_path: Path) -> None:
    found = load_pipeline("external:flink", tmp_path)
    assert (found.name, found.mode, found.external) == ("flink", "external", External())
    assert len(found.stages) == 5
    write(tmp_path, "flink", 'command = ["flink", "run"]')
    assert load_pipeline("external:flink", tmp_path).external == External(command=("flink", "run"))
    with pytest.raises(DefinitionError, match="external:No Name"):
        load_pipeline("external:No Name", tmp_path)


def test_mode_and_table_belong_together() -> None:
    for fields in ({"mode": "external"}, {"mode": "real-time", "external": {}}):
        with pytest.raises(ValidationError, match="belong together"):
            Pipeline.model_validate({"name": "a", "summary": "-", **fields})


def test_an_external_pipeline_may_publish_or_withhold_incomplete_windows() -> None:
    for kept in ("publish", "withhold"):
        fields = {"name": "a", "summary": "-", "mode": "external", "external": {}}
        assert Pipeline.model_validate(fields | {"incomplete_windows": kept}).mode == "external"


def test_the_program_is_told_what_to_read_and_where_to_write() -> None:
    pipeline = external("mine").model_copy(update={"stages": ("ingest", "parse")})
    request = a_request().model_copy(update={"pipelines": (pipeline,)})
    offsets = {"traffic.flow": (7, 8), "traffic.speed": (9, 0), "output.mine.parse": (1, 1)}
    plan = RunPlan(request=request, start_offsets=offsets)
    settings = ServiceSettings(kafka_bootstrap="broker:9092")
    told = environment(pipeline, plan, settings)
    assert told["TIDEGAUGE_KAFKA_BOOTSTRAP"] == "broker:9092"
    assert told["TIDEGAUGE_STAGES"] == "ingest,parse"
    assert told["TIDEGAUGE_OUTPUT"] == "output.mine."
    assert told["TIDEGAUGE_RUN_ID"] == RUN_ID
    assert told["TIDEGAUGE_START_OFFSETS"] == '{"traffic.flow": [7, 8], "traffic.speed": [9, 0]}'
    assert told["PATH"].startswith(str(Path(sys.executable).parent))


def test_of_our_own_environment_the_program_gets_what_it_needs_to_run(monkeypatch) -> None:
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
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    offsets = {"traffic.flow": (0,), "traffic.speed": (0,)}
    plan = RunPlan(request=a_request(), start_offsets=offsets)
    told = environment(external("mine"), plan, ServiceSettings(kafka_properties={}))
    assert {name for name in given if name in told} == {
        *("HOME", "LC_ALL", "https_proxy", "TIDEGAUGE_STACK_ID"),
    }
    ours = ServiceSettings(kafka_bootstrap="k:1", kafka_properties={"sasl.password": "y"})
    told = environment(external("mine"), plan, ours)
    assert told["TIDEGAUGE_KAFKA_PROPERTIES"] == '{"sasl.password": "y"}'


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


# The wrapper as it is, but for the bus; its program starts one more and says both numbers.
WRAPPER = """
import sys
from services.external_pipeline import __main__ as external
class Events:
    def lifecycle(self, *_event, **_fields): pass
external.open_events = lambda *_: Events()
sys.exit(external.main())
"""
PROGRAM = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("leads_its_group", [True, False])
def test_the_program_ends_when_the_agent_is_gone(tmp_path: Path, leads_its_group: bool) -> None:
    request = a_request().model_copy(
        update={"pipelines": (external("mine", sys.executable, "-c", PROGRAM),)}
    )
    offsets: dict[str, tuple[int, ...]] = {"traffic.flow": (0,), "traffic.speed": (0,)}
    plan = tmp_path / "plan.json"
    plan.write_text(RunPlan(request=request, start_offsets=offsets).model_dump_json())
    options = ["--pipeline", "mine", "--plan", str(plan)]
    wrapper = subprocess.Popen(
        [sys.executable, "-c", WRAPPER, *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=leads_its_group,
    )
    assert wrapper.stdin is not None
    assert wrapper.stdout is not None
    program, child = (psutil.Process(int(pid)) for pid in wrapper.stdout.readline().split())
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
    """Whether it is gone within 10 s, but for what init has not buried yet."""
    deadline_s = time.monotonic() + 10
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.02)
    return True
