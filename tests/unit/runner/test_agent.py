"""The agent: effects of commands on programs, and published events."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaException

from schemas import codec
from schemas.commands import Malformed, Start, Stop
from schemas.engine import EnginePlan
from schemas.load import Constant
from schemas.protocol import PhasePlan, RunPlan, RunRequest
from schemas.workload import Judgement, Kill, Phases, Workload
from services.definitions.engines import installed, load_engine
from services.definitions.pipelines import checked_pipeline, load_pipeline
from services.runner.__main__ import handle_command
from services.runner.agent import Agent, RunnerLimits
from services.runner.processes import PipelineProcess, last_meaningful_line
from services.runner.session import Waited
from services.runner.small_disk import SmallDisk, unmount_below
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

SLOWLY = "import sys; sys.stdin.read()"
FOR_EVER = """import sys; print('{"event": "ready"}', flush=True); sys.stdin.read()"""


@dataclass
class Said:
    """Events published by the agent: lifecycle, and others by topic."""

    events: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def publish(self, event):
        detail = None if event.name == "stopped" else event.detail
        self.events.append((event.name, event.run_id, event.pipeline or None, detail))

    def publish_figures(self, topic, run_id, **fields):
        self.others.append((topic, run_id, fields))

    def dead_letter(self, letter, run_id):
        self.others.append(("dead-letter", run_id, letter.offset))


def plan(run_id, *names, engine="spark", stages=("join",), **settings):
    workload = Workload(
        name="w",
        summary="-",
        load=Constant(rate_per_second=1),
        phases=Phases(),
        judgement=Judgement(deadline_ms=7_000),
    )
    given = {"mode": "real-time", "implementation": "customised"} if engine == "spark" else {}
    pipelines = tuple(
        checked_pipeline({"name": name, "summary": "-", "engine": engine} | given | settings)
        for name in names
    )
    request = RunRequest(
        run_id=run_id, workload=workload, pipelines=pipelines, stages=stages, domain=TRAFFIC
    )
    return RunPlan(request=request, start_offsets={"traffic.flow": (3,), "traffic.speed": (4,)})


MANY_AT_ONCE = RunnerLimits(starting_at_once=8)


def an_agent(folder, said, *arguments, limits=MANY_AT_ONCE, **fields):
    """An agent that may start every pipeline, on any machine several at once."""
    settings = ServiceSettings(data=folder)
    return Agent(
        settings, said, *arguments, objection=lambda _pipeline: None, limits=limits, **fields
    )


def version_of(engine):
    """The version of an engine that the agent tells."""
    return installed(load_engine(engine), ServiceSettings()).version()


class Starter:
    """Starts a process that runs `code` in place of an engine's program."""

    def __init__(self, code=FOR_EVER, log=""):
        self.code, self.log, self.started = code, log, []

    def __call__(self, pipeline, place, plan_path, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.log)
        process = subprocess.Popen(
            [sys.executable, "-c", self.code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        os.set_blocking(process.stdout.fileno(), False)
        self.started.append(PipelineProcess(pipeline.name, process, log))
        return self.started[-1]


def logs(folder):
    """The logs of a data folder by name."""
    return {one.name: one.read_text() for one in (folder / "logs").iterdir()}


def until(agent, condition, deadline_s=60):
    """Run the agent until a condition is true."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        agent.watch()


def ready(agent, said, count=1):
    """Run the agent until `count` pipelines were ready."""
    until(agent, lambda: sum(e[0] in ("ready", "pipeline_up") for e in said.events) >= count)


def test_prepare_starts_one_driver_per_pipeline_and_stop_ends_them_and_says_so(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a", "b"))
    file = tmp_path / "runs" / "r1" / "a.plan.json"
    assert [driver.pipeline for driver in starter.started] == ["a", "b"]
    assert file.stat().st_mode & 0o777 == 0o600
    told = EnginePlan.model_validate_json(file.read_text())
    assert (told.run_id, told.pipeline.name, told.domain) == ("r1", "a", TRAFFIC)
    assert (told.outputs, told.deadline_ms) == ({"join": "output.a.join"}, 7_000)
    assert told.start_offsets == {"traffic.flow": (3,), "traffic.speed": (4,)}

    agent.stop("r1")
    assert all(driver.process.poll() is not None for driver in starter.started)
    assert said.events == [("stopped", "r1", "a", None), ("stopped", "r1", "b", None)]
    assert not file.parent.exists()


def test_drivers_beyond_what_the_machine_starts_at_once_wait_for_others_to_be_ready(tmp_path):
    said, starter = Said(), Starter(SLOWLY)
    agent = an_agent(tmp_path, said, starter, limits=RunnerLimits(starting_at_once=2))
    starter.code = FOR_EVER
    agent.prepare(plan("r1", "a", "b", "c"))
    assert [driver.pipeline for driver in starter.started] == ["a", "b"]
    ready(agent, said)
    assert [driver.pipeline for driver in starter.started] == ["a", "b", "c"]
    agent.close()
    agent.prepare(plan("r2", "d"))
    assert starter.started[-1].pipeline == "d"
    agent.close()


def test_pipelines_with_python_workers_start_first(tmp_path):
    starter = Starter()
    agent = an_agent(tmp_path, Said(), starter)
    asked = plan("r1", "a", "b", "c")
    a, b, c = asked.request.pipelines
    state = b.model_copy(update={"mode": "micro-batch", "implementation": "state"})
    request = asked.request.model_copy(update={"pipelines": (a, state, c)})
    agent.prepare(asked.model_copy(update={"request": request}))
    assert [driver.pipeline for driver in starter.started] == ["b", "a", "c"]
    agent.close()


def test_the_same_prepare_twice_starts_its_drivers_once(tmp_path):
    starter = Starter()
    agent = an_agent(tmp_path, Said(), starter)
    agent.prepare(plan("r1", "a"))
    agent.prepare(plan("r1", "a"))
    assert len(starter.started) == 1
    agent.close()


def test_a_new_run_ends_the_run_before(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    agent.prepare(plan("r2", "a"))
    assert said.events == [("stopped", "r1", "a", None)]
    assert starter.started[0].process.poll() is not None
    assert starter.started[1].process.poll() is None
    agent.close()
    assert said.events[1:] == [("stopped", "r2", "a", None)]


def test_the_stop_of_another_run_changes_nothing(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    handle_command(Stop(run_id="r0"), agent, said)
    assert said.events == []
    agent.close()


def test_a_driver_that_dies_is_a_failure_told_once_with_the_last_line_of_its_log(tmp_path):
    said = Said()
    starter = Starter("raise SystemExit(1)", "Traceback (most recent call last):\nOut of memory\n")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    starter.started[0].process.wait()
    agent.watch()
    agent.watch()
    reason = "the program of a exited (code 1): Out of memory"
    assert said.events == [("failed", "r1", "a", {"reason": reason})]
    agent.stop("r1")
    assert said.events[1:] == [("stopped", "r1", "a", None)]


def test_the_log_of_a_failure_outlives_the_next_start(tmp_path):
    starter = Starter("raise SystemExit(1)", "Out of memory\n")
    agent = an_agent(tmp_path, Said(), starter)
    agent.prepare(plan("r1", "a"))
    starter.started[0].process.wait()
    agent.watch()
    agent.stop("r1")
    starter.log = "all is well\n"
    agent.prepare(plan("r2", "a"))
    assert logs(tmp_path) == {
        "pipeline-a.failed.log": "Out of memory\n",
        "pipeline-a.log": "all is well\n",
    }
    agent.close()


def test_the_log_of_a_failed_program_is_kept_if_the_run_is_stopped_before_it_ends(tmp_path):
    failure = {"event": "failed", "stage": "join", "reason": "no broker"}
    code = f"import sys; print({json.dumps(failure)!r}, 'cause', sep='\\n', flush=True)"
    said, starter = Said(), Starter(f"{code}; sys.stdin.read()", "halfway\n")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    until(agent, lambda: said.events)
    assert starter.started[0].code is None
    agent.stop("r1")
    agent.prepare(plan("r2", "a"))
    assert logs(tmp_path) == {
        "pipeline-a.failed.log": "halfway\ncause\n",
        "pipeline-a.log": "halfway\n",
    }
    agent.close()


def test_the_log_of_a_running_program_is_bounded(tmp_path):
    starter = Starter(log="x" * 2_000)
    agent = an_agent(tmp_path, Said(), starter, limits=RunnerLimits(log_bytes=1_000))
    agent.prepare(plan("r1", "a"))
    agent.watch()
    log = tmp_path / "logs" / "pipeline-a.log"
    assert log.stat().st_size == 0
    assert log.with_name("pipeline-a.log.1").stat().st_size == 2_000
    agent.stop("r1")


def test_a_driver_that_told_its_failure_itself_is_not_told_again(tmp_path):
    failure = {"event": "failed", "stage": "join", "reason": "no\nbroker"}
    said, starter = Said(), Starter(f"print({json.dumps(failure)!r}); raise SystemExit(1)")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    starter.started[0].process.wait()
    agent.watch()
    agent.watch()
    assert said.events == [("failed", "r1", "a", {"reason": "a join: no broker"})]


def test_a_prepare_that_is_no_plan_is_a_failure_with_a_reason(tmp_path):
    said = Said()
    command = Malformed("prepare", "r1", "1", "request: It must be a table")
    handle_command(command, an_agent(tmp_path, said), said)
    assert [(event, run_id) for event, run_id, _, _ in said.events] == [("failed", "r1")]


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "its log has no message"),
        ("all is well\n\n", "all is well"),
        ("E: no memory\n\tat a.B.c(B.scala:1)\n\tat a.B.d(B.scala:2)\n\n", "E: no memory"),
        ('Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 1', "KeyError: 1"),
        ("no memory\n%3|1764244800.1|FAIL|rdkafka#producer-1| [thrd:b]: b: refused", "no memory"),
        ("x" * 2000, "x" * 600),
    ],
    ids=[
        *("empty log", "blank lines after it", "Java frames", "Python traceback"),
        *("a Kafka client's", "very long"),
    ],
)
def test_the_last_meaningful_line_is_no_stack_frame(log, line):
    assert last_meaningful_line(log) == line


def killed(agent, said, starter):
    """The agent after it noticed that a ready program was killed."""
    driver = starter.started[-1]
    ready(agent, said, len(starter.started))
    driver.process.kill()
    driver.process.wait()
    before = len(said.events)
    until(agent, lambda: len(said.events) > before)


def test_a_driver_that_was_killed_after_it_was_ready_is_started_again_with_the_same_plan(tmp_path):
    said, starter = Said(), Starter(log="halfway\n")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "b", "a"))
    killed(agent, said, starter)
    assert [driver.pipeline for driver in starter.started] == ["b", "a", "a"]
    assert starter.started[2].process.poll() is None
    ready(agent, said, 3)
    reason = "the program of a exited (code -9): halfway"
    assert said.events[2:] == [
        ("pipeline_down", "r1", "a", {"reason": reason, "restart": 1}),
        ("pipeline_up", "r1", "a", {"version": version_of("spark")}),
    ]
    assert (tmp_path / "logs" / "pipeline-a.log.1").read_text() == "halfway\n"
    agent.close()
    assert starter.started[2].process.poll() is not None


def test_a_driver_that_keeps_being_killed_fails_after_its_restarts(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    for _ in range(4):
        killed(agent, said, starter)
    assert [event for event, *_ in said.events] == [
        *("ready", "pipeline_down", "pipeline_up", "pipeline_down"),
        *("pipeline_up", "pipeline_down", "pipeline_up", "failed"),
    ]
    assert len(starter.started) == 4


def provoked(planned, *targets):
    """The plan of a run with faults of these targets."""
    kills = tuple(Kill(target=target) for target in targets)
    workload = planned.request.workload.model_copy(update={"kills": kills})
    request = planned.request.model_copy(update={"workload": workload})
    return planned.model_copy(update={"request": request})


FAILS = """print('{"event": "ready"}', flush=True)
print('{"event": "failed", "stage": "join", "reason": "no space"}', flush=True)"""


def test_a_program_that_fails_in_a_run_that_makes_it_fail_is_started_again(tmp_path):
    said, starter = Said(), FailingOnce(FAILS)
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(provoked(plan("r1", "a"), "record"))
    ready(agent, said, 2)
    reason = "the program of a exited (code 0): no space"
    assert said.events[1][:1] + said.events[1][2:] == (
        *("pipeline_down", "a"),
        {"reason": reason, "restart": 1},
    )
    assert [event for event, *_ in said.events] == ["ready", "pipeline_down", "pipeline_up"]
    agent.close()


def test_a_program_that_fails_in_any_other_run_fails_the_run(tmp_path):
    said, starter = Said(), FailingOnce(FAILS)
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(provoked(plan("r1", "a"), "driver", "network"))
    until(agent, lambda: len(said.events) >= 2)
    assert said.events[1] == ("failed", "r1", "a", {"reason": "a join: no space"})
    assert len(starter.started) == 1
    agent.close()


def test_a_program_is_told_of_a_file_that_makes_it_throw_only_if_the_run_has_such_a_fault(tmp_path):
    agent = an_agent(tmp_path, Said(), Starter())
    files = {}
    for run_id, planned in {
        "r1": plan("r1", "a"),
        "r2": provoked(plan("r2", "a"), "driver"),
        "r3": provoked(plan("r3", "a"), "driver", "record"),
    }.items():
        agent.prepare(planned)
        path = tmp_path / "runs" / run_id / "a.plan.json"
        files[run_id] = EnginePlan.model_validate_json(path.read_text()).raise_file
    agent.close()
    assert files == {"r1": "", "r2": "", "r3": str(tmp_path / "runs" / "r3" / "a.raise")}


@pytest.fixture
def may_mount(tmp_path):
    """Skips the test if this user may not mount a disk."""
    try:
        SmallDisk(tmp_path / "tried", 16).remove()
    except OSError as error:
        pytest.skip(str(error))


def fill(folder):
    """Use all space of a disk."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_program_may_end_any_number_of_times_while_its_disk_is_full(tmp_path, may_mount):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(provoked(plan("r1", "a", max_restarts=1), "disk"))
    folder = tmp_path / "runs" / "r1" / "a"
    assert folder.is_mount()
    fill(folder)
    for _ in range(3):
        killed(agent, said, starter)
    (folder / "ballast").unlink()
    for _ in range(2):
        killed(agent, said, starter)
    downs = [event for event, *_ in said.events if event in ("pipeline_down", "failed")]
    assert downs == ["pipeline_down"] * 4 + ["failed"]
    agent.stop("r1")
    assert not folder.exists()


def test_disks_that_a_killed_runner_has_left_are_unmounted(tmp_path, may_mount):
    runs, other = tmp_path / "ebbe ä" / "runs", tmp_path / "other disk"
    left = runs / "r1" / "a"
    SmallDisk(left, 16)
    kept = SmallDisk(other, 16)
    unmount_below(runs)
    assert not left.is_mount()
    assert other.is_mount()
    kept.remove()


def test_a_disk_that_cannot_be_mounted_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(OSError, match="a fault of the disk needs a tmpfs for the files of the "):
        SmallDisk(tmp_path / "disk", -1)


TIMED_OUT = "Lost task 0.0: org.apache.spark.SparkException: Python worker failed to connect back."


def failing(reason, before=""):
    """The code of a program that is ready, reports a failure after `before`, and does not end."""
    line = json.dumps({"event": "failed", "stage": "join", "reason": reason})
    return f"""import pathlib, sys, time
print('{{"event": "ready"}}', flush=True)
{before}
print({line!r}, flush=True)
sys.stdin.read()"""


class Machine:
    """Time that passes with every look at it; `share`: of it that some task waited for a core."""

    def __init__(self, share):
        self.share, self.now_s = share, 0.0

    def clock_s(self):
        return self.now_s

    def meter(self):
        self.now_s += 30
        return Waited(self.now_s, self.share * self.now_s)


class FailingOnce(Starter):
    """Starts a program that fails, and then programs that do not."""

    def __call__(self, *arguments):
        started = super().__call__(*arguments)
        self.code = FOR_EVER
        return started


def starting(folder, reason, share, timeout_s=120, starter=Starter, **settings):
    """An agent whose program has failed at its start, what it said, and its programs."""
    said, machine = Said(), Machine(share)
    starter = starter(failing(reason), log="the log\n")
    agent = an_agent(folder, said, starter, machine.clock_s, meter=machine.meter)
    asked = plan("r1", "a", **settings).model_copy(update={"start_timeout_s": timeout_s})
    agent.prepare(asked)
    ended = ("start_again", "failed")
    until(agent, lambda: any(event in ended for event, *_ in said.events))
    return agent, said, starter


@pytest.mark.parametrize("engine", ["spark", "calibration"])
def test_a_start_that_timed_out_on_a_busy_machine_is_tried_again_and_said(tmp_path, engine):
    agent, said, starter = starting(
        tmp_path, TIMED_OUT, share=0.9, starter=FailingOnce, engine=engine
    )
    assert starter.started[0].process.poll() is not None
    assert said.events[-1] == ("start_again", "r1", "a", {"reason": TIMED_OUT, "try": 2})
    assert (tmp_path / "logs" / "pipeline-a.log.1").read_text() == "the log\n"
    until(agent, lambda: said.events[-1][0] == "ready")
    assert len(starter.started) == 2
    agent.close()


def test_a_program_that_ends_with_a_timeout_at_its_start_is_tried_again(tmp_path):
    said, machine = Said(), Machine(0.9)
    starter = FailingOnce("", log="TimeoutError: the gateway timed out\n")
    agent = an_agent(tmp_path, said, starter, machine.clock_s, meter=machine.meter)
    agent.prepare(plan("r1", "a").model_copy(update={"start_timeout_s": 120}))
    until(agent, lambda: said.events)
    assert said.events[0][0] == "start_again"
    assert "the gateway timed out" in said.events[0][3]["reason"]
    until(agent, lambda: said.events[-1][0] == "ready")
    agent.close()


@pytest.mark.parametrize(
    ("reason", "share", "timeout_s"),
    [
        ("no such topic", 0.9, 120),
        (TIMED_OUT, 0.05, 120),
        (TIMED_OUT, 0.9, 20),
    ],
    ids=["another cause", "idle cores", "the time of a start is over"],
)
def test_any_other_start_that_fails_ends_at_once_with_its_cause(tmp_path, reason, share, timeout_s):
    agent, said, starter = starting(tmp_path, reason, share, timeout_s)
    assert said.events[-1] == ("failed", "r1", "a", {"reason": f"a join: {reason}"})
    assert len(starter.started) == 1
    agent.close()


def test_a_start_is_tried_again_only_before_the_load(tmp_path):
    machine, told = Machine(0.9), tmp_path / "told"
    waits = f"while not pathlib.Path({str(told)!r}).exists(): time.sleep(0.01)"
    said, starter = Said(), Starter(failing(TIMED_OUT, waits))
    agent = an_agent(tmp_path, said, starter, machine.clock_s, meter=machine.meter)
    agent.prepare(plan("r1", "a").model_copy(update={"start_timeout_s": 120}))
    ready(agent, said)
    agent.begin("r1", PhasePlan(load_start_ms=60_000, phases=Phases()))
    told.touch()
    until(agent, lambda: said.events[-1][0] != "ready")
    assert said.events[-1] == ("failed", "r1", "a", {"reason": f"a join: {TIMED_OUT}"})
    agent.close()


def test_a_start_is_tried_five_times(tmp_path):
    agent, said, starter = starting(tmp_path, TIMED_OUT, share=0.9, timeout_s=10_000)
    until(agent, lambda: said.events[-1][0] == "failed")
    assert [event for event, *_ in said.events if event != "ready"] == [
        *("start_again",) * 4,
        "failed",
    ]
    assert len(starter.started) == 5
    agent.close()


def test_a_program_that_cannot_go_on_where_it_was_is_not_started_again(tmp_path):
    said, starter = Said(), Starter(log="halfway\n")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a", engine="calibration"))
    killed(agent, said, starter)
    reason = "the program of a exited (code -9): halfway"
    assert said.events[1:] == [("failed", "r1", "a", {"reason": reason})]
    assert len(starter.started) == 1


def test_a_new_run_may_restart_its_drivers_as_often_as_the_run_before(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    for run_id in ("r1", "r2"):
        agent.prepare(plan(run_id, "a"))
        killed(agent, said, starter)
        ready(agent, said, len(starter.started))
    details = [detail for event, _, _, detail in said.events if event == "pipeline_down"]
    assert [detail["restart"] for detail in details] == [1, 1]
    agent.close()


def keep(agent, said, run_id):
    ready(agent, said)
    handle_command(Stop(run_id=run_id, keep_pipelines=True), agent, said)


def test_drivers_that_are_kept_serve_the_next_run_of_the_same_pipelines(tmp_path):
    line = json.dumps({"event": "ready", "detail": {"version": "1"}})
    said = Said()
    starter = Starter(f"import sys; print({line!r}, flush=True); sys.stdin.read()")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    keep(agent, said, "r1")
    agent.prepare(plan("r2", "a"))
    assert said.events == [
        ("ready", "r1", "a", {"version": "1"}),
        ("stopped", "r1", "a", None),
        ("ready", "r2", "a", {"version": "1"}),
    ]
    assert len(starter.started) == 1
    assert (tmp_path / "runs" / "r1").exists()  # contains its checkpoints
    agent.stop("r2")
    assert starter.started[0].process.poll() is not None
    assert not (tmp_path / "runs" / "r1").exists()


TELLS_UNDECODABLE = """
import json, sys
print('{"event": "ready"}', flush=True)
for offset in map(int, sys.stdin):
    line = {"event": "undecodable", "topic": "traffic.flow", "partition": 0, "offset": offset}
    print(json.dumps(line), flush=True)
"""


def test_only_the_first_undecodable_values_of_a_run_become_dead_letters(tmp_path):
    said, starter = Said(), Starter(TELLS_UNDECODABLE)
    agent = an_agent(tmp_path, said, starter, limits=RunnerLimits(letters=2))
    for run_id in ("r1", "r2"):
        agent.prepare(plan(run_id, "a"))
        ready(agent, said)
        (process,) = starter.started
        process.process.stdin.write(b"1\n2\n3\n4\n")
        process.process.stdin.flush()
        (member,) = agent._state.session.members
        until(agent, lambda member=member: member.refused == 4)
        keep(agent, said, run_id)
    assert said.others == [("dead-letter", run, at) for run in ("r1", "r2") for at in (1, 2)]
    agent.close()


def test_other_pipelines_end_those_that_were_kept(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    keep(agent, said, "r1")
    agent.prepare(plan("r2", "b"))
    assert starter.started[0].process.poll() is not None
    assert [driver.pipeline for driver in starter.started] == ["a", "b"]
    assert (tmp_path / "runs" / "r2" / "b.plan.json").exists()
    agent.close()


def test_drivers_that_were_kept_end_after_a_minute_without_a_run(tmp_path):
    said, starter, clock = Said(), Starter(), [100.0]
    agent = an_agent(tmp_path, said, starter, lambda: clock[0])
    agent.prepare(plan("r1", "a"))
    keep(agent, said, "r1")
    clock[0] = 160.0
    agent.watch()
    assert starter.started[0].process.poll() is None
    clock[0] = 160.5
    agent.watch()
    assert starter.started[0].process.poll() is not None
    assert not (tmp_path / "runs" / "r1").exists()


def test_a_driver_that_was_kept_and_died_is_started_anew(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    keep(agent, said, "r1")
    starter.started[0].process.kill()
    starter.started[0].process.wait()
    agent.prepare(plan("r2", "a"))
    assert len(starter.started) == 2
    assert [event for event, *_ in said.events] == ["ready", "stopped"]
    agent.close()


def test_own_topics_are_removed_with_the_pipelines_and_not_before(tmp_path):
    said, removed = Said(), []
    agent = an_agent(tmp_path, said, Starter(), remove_topics=removed.append)
    agent.prepare(plan("r1", "a", "b"))
    ready(agent, said, 2)
    keep(agent, said, "r1")
    agent.prepare(plan("r2", "a", "b"))
    assert removed == []
    agent.stop("r2")
    assert removed == [("engine.a.r1", "engine.b.r1")]


def test_a_broker_that_removes_no_topics_hinders_no_stop(tmp_path):
    def refuse(_prefixes):
        raise KafkaException("not permitted")

    said = Said()
    agent = an_agent(tmp_path, said, Starter(), remove_topics=refuse)
    agent.prepare(plan("r1", "a"))
    agent.stop("r1")
    assert [event for event, *_ in said.events] == ["stopped"]


def test_a_driver_that_dies_in_a_run_it_was_kept_for_is_a_failure_of_that_run(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    keep(agent, said, "r1")
    agent.prepare(plan("r2", "a"))
    starter.started[0].process.kill()
    starter.started[0].process.wait()
    agent.watch()
    assert [(event, run_id) for event, run_id, *_ in said.events][3:] == [("failed", "r2")]
    agent.close()


def test_drivers_that_shall_start_after_the_load_wait_for_their_time(tmp_path):
    said, starter = Said(), Starter()
    agent = an_agent(tmp_path, said, starter)
    given = plan("r1", "a")
    workload = given.request.workload.model_copy(update={"pipelines_start_s": 5})
    request = given.request.model_copy(update={"workload": workload})
    agent.prepare(given.model_copy(update={"request": request}))
    agent.watch()
    assert starter.started == []
    for begun_ms, started in ((now_ms() + 3_600_000, 0), (now_ms() - 3_600_000, 1)):
        phases = PhasePlan(load_start_ms=begun_ms // 1000 * 1000, phases=Phases())
        handle_command(Start(run_id="r1", phases=phases), agent, said)
        agent.watch()
        assert len(starter.started) == started
    agent.stop("r1")
    assert [event for event, *_ in said.events] == ["stopped"]
    assert starter.started[0].process.poll() is not None


def test_a_pipeline_that_no_file_of_this_machine_describes_fails_the_run(tmp_path):
    said, starter = Said(), Starter()
    agent = Agent(ServiceSettings(data=tmp_path), said, starter)
    own = load_pipeline("spark-realtime").model_copy(update={"jvm_options": ("-XX:OnError=id",)})
    asked = plan("r1", "a")
    pipelines = (load_pipeline("spark-microbatch"), own)
    request = asked.request.model_copy(update={"pipelines": pipelines})
    agent.prepare(asked.model_copy(update={"request": request}))
    agent.watch()
    reason = (
        "spark-realtime was not started: pipelines/spark-realtime.toml on the agent's machine"
        " differs"
    )
    assert said.events == [
        ("failed", "r1", "spark-realtime", {"reason": reason}),
        ("stopped", "r1", "spark-microbatch", None),  # nobody waits for their end
        ("stopped", "r1", "spark-realtime", None),
    ]
    assert starter.started == []
    assert not (tmp_path / "runs").exists()


def test_what_a_program_says_becomes_events_of_the_run(tmp_path):
    lines = [
        {"event": "ready", "detail": {"version": "1"}},
        {"event": "ready"},
        {"event": "progress", "stage": "join", "input_rows": 7, "detail": {"x": 1}},
        {"event": "progress", "stage": "parse", "input_rows": 7},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    said, starter = Said(), Starter(f"import sys; print({text!r}, flush=True); sys.stdin.read()")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a"))
    until(agent, lambda: said.others)
    agent.watch()
    assert said.events == [("ready", "r1", "a", {"version": "1"})]
    ((topic, run_id, fields),) = said.others  # none for a stage that it does not publish
    assert (topic, run_id) == ("results.pipeline", "r1")
    head = {"run_id": "r1", "time": 1, "producer": "runner"}
    _, event = codec.decode(codec.encode("results_pipeline", head | fields))
    assert (event["pipeline"], event["stage"], event["input_rows"]) == ("a", "join", 7)
    assert (event["detail"], event["batch_id"], event["state_rows"]) == ('{"x": 1}', 0, None)
    agent.close()


def test_the_scheduler_delays_of_a_pipeline_are_of_no_stage(tmp_path):
    line = json.dumps({"event": "tasks", "delays_ms": [3, 4], "tasks": [17, 2]})
    said = Said()
    code = f"import sys; print({line!r}, flush=True); sys.stdin.read()"
    agent = an_agent(tmp_path, said, Starter(code))
    agent.prepare(plan("r1", "a"))
    until(agent, lambda: said.others)
    ((topic, run_id, fields),) = said.others
    assert (topic, run_id) == ("results.pipeline", "r1")
    head = {"run_id": "r1", "time": 1, "producer": "runner"}
    _, event = codec.decode(codec.encode("results_pipeline", head | fields))
    assert (event["pipeline"], event["stage"], event["batch_id"]) == ("a", "", -1)
    assert (event["scheduler_delays_ms"], event["scheduler_delay_tasks"]) == ([3, 4], [17, 2])
    agent.close()


def said_by(folder, *lines, said=None):
    """The agent's events, by pipeline, after two pipelines have each written these lines."""
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines))
    code = (
        f"import sys; print(open({str(folder / 'lines')!r}).read(), flush=True); sys.stdin.read()"
    )
    said = said or Said()
    agent = an_agent(folder, said, Starter(code))
    agent.prepare(plan("r1", "a", "b", engine="calibration"))
    until(agent, lambda: len(said.events) > 1)
    agent.watch()
    told = sorted(said.events, key=lambda event: event[2])
    agent.close()
    return told


def test_the_detail_of_a_program_may_have_any_names(tmp_path):
    detail = dict.fromkeys(("self", "event", "session", "member", "run_id", "version"), 1)
    line = json.dumps({"event": "ready", "detail": detail})
    assert said_by(tmp_path, line) == [("ready", "r1", name, detail) for name in "ab"]


@pytest.mark.parametrize("line", ['"event": "ready"', '"event": "progress", "stage": "join"'])
def test_a_detail_that_is_too_large_as_json_fails_its_pipeline(tmp_path, line):
    numbers = ",".join(["1e15"] * 50_000)
    more = "" if "ready" in line else ', "input_rows": 1'
    kind = line.split('"')[3]
    reason = f"the detail of a {kind} line takes 1000007 bytes as JSON, at most 262144 are allowed"
    assert said_by(tmp_path, f'{{{line}{more}, "detail": {{"x": [{numbers}]}}}}') == [
        ("failed", "r1", name, {"reason": f"{name}: {reason}"}) for name in "ab"
    ]


def test_a_line_that_cannot_be_published_fails_its_pipeline_alone(tmp_path):
    class Refusing(Said):
        def publish(self, event):
            if (event.name, event.pipeline) == ("ready", "a"):
                raise KafkaException("too large")
            super().publish(event)

    reason = "a: a line cannot be published: KafkaException: too large"
    assert said_by(tmp_path, '{"event": "ready"}', said=Refusing()) == [
        ("failed", "r1", "a", {"reason": reason}),
        ("ready", "r1", "b", {}),
    ]


@pytest.mark.parametrize("told", [{"tasks": 2}, {"quix_version": "1"}])
def test_the_version_of_an_engine_is_told_when_it_is_ready_unless_its_program_told_it(
    tmp_path, told
):
    line = json.dumps({"event": "ready", "detail": told})
    said = Said()
    starter = Starter(f"import sys; print({line!r}, flush=True); sys.stdin.read()")
    agent = an_agent(tmp_path, said, starter)
    agent.prepare(plan("r1", "a", engine="quix"))
    ready(agent, said)
    added = {"version": version_of("quix")} if "tasks" in told else {}
    assert said.events == [("ready", "r1", "a", told | added)]
    agent.close()
