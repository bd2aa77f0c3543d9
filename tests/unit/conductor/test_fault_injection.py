"""Only the intended processes are killed."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest
from pydantic import ValidationError

from schemas.pipeline import Pipeline
from schemas.workload import Kill
from services.conductor.fault_injection import carry_out, plant, processes_of
from services.runner.small_disk import SmallDisk
from services.runtime.process_identity import birth_of
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit

ONE = Pipeline(name="one", summary="-", engine="spark")
FOR_EVER = "import sys; print('up', flush=True); sys.stdin.read()"
# A service whose children look like drivers of the pipelines `one` and `two`, and their proxies.
AGENT = f"""
import subprocess, sys
for name in ("one", "two"):
    command = [sys.executable, "-c", {FOR_EVER!r}, f"/data/runs/r1/{{name}}.plan.json"]
    proxy = [*command[:3], "-m", "services.runner.proxy", "7", name]
    for child in (command, proxy):
        driver = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        driver.stdout.readline()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stack(tmp_path):
    """Two services of a stack; their process ids are in its file."""
    codes = {"runner": AGENT, "evaluator": FOR_EVER}
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name, code in codes.items()
    }
    services = []
    for name, process in started.items():
        assert process.stdout.readline() == b"up\n"
        services.append({"name": name, "pid": process.pid, "birth": birth_of(process.pid)})
    (tmp_path / "stack.json").write_text(json.dumps({"services": services}))
    yield tmp_path, started
    for process in started.values():
        below = psutil.Process(process.pid).children() if process.poll() is None else []
        process.kill()
        process.wait()
        for child in below:
            child.kill()


def pids_of(target, *where, **more):
    return [process.pid for process in processes_of(Kill(target=target, **more), *where)]


def test_a_service_is_killed(stack):
    data, started = stack
    found = processes_of(Kill(target="evaluator"), data, [ONE])
    assert [process.pid for process in found] == [started["evaluator"].pid]
    assert started["evaluator"].poll() is None
    carry_out(Kill(target="driver"), found)
    assert started["evaluator"].wait(10) == -9
    assert started["runner"].poll() is None
    carry_out(Kill(target="driver"), found)  # it has ended already


def test_a_terminated_service_may_end_by_itself(stack):
    data, started = stack
    found = processes_of(Kill(target="evaluator"), data, [ONE])
    carry_out(Kill(target="evaluator", signal="terminate"), found)
    assert started["evaluator"].wait(10) == -15


def test_a_paused_service_goes_on(stack):
    data, started = stack
    planned = Kill(target="evaluator", signal="pause", for_s=1)
    (paused,) = processes_of(planned, data, [ONE])
    carry_out(planned, [paused])
    await_status(paused, psutil.STATUS_STOPPED)
    await_status(paused, psutil.STATUS_SLEEPING)
    assert started["evaluator"].poll() is None


def await_status(process, status):
    deadline_s = time.monotonic() + 60
    while process.status() != status:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_the_driver_of_the_pipeline_is_killed_and_no_other(stack):
    data, started = stack
    drivers = psutil.Process(started["runner"].pid).children()
    mine = next(driver for driver in drivers if driver.cmdline()[-1].endswith("/one.plan.json"))
    other = next(driver for driver in drivers if driver.cmdline()[-1].endswith("/two.plan.json"))
    found = processes_of(Kill(target="driver"), data, [ONE])
    assert [process.pid for process in found] == [mine.pid]
    carry_out(Kill(target="driver"), found)
    await_status(mine, psutil.STATUS_ZOMBIE)  # no process waits for it
    assert other.status() != psutil.STATUS_ZOMBIE


def test_the_network_is_the_proxies_of_the_pipelines(stack):
    data, started = stack
    (proxy,) = processes_of(Kill(target="network"), data, [ONE])
    assert proxy.cmdline()[-4:] == ["-m", "services.runner.proxy", "7", "one"]
    assert proxy.ppid() == started["runner"].pid
    assert pids_of("network", data, [ONE.model_copy(update={"name": "three"})]) == []
    assert pids_of("disk", data, [ONE]) == pids_of("record", data, [ONE])
    assert pids_of("disk", data, [ONE]) == pids_of("driver", data, [ONE])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target": "network"}, "cut of the network for 5 s"),
        ({"target": "network", "signal": "pause", "for_s": 2}, "pause of the network for 2 s"),
        (
            {"target": "network", "signal": "slow", "delay_ms": 250},
            "slowing of the network by 250 ms for 5 s",
        ),
        ({"target": "worker", "most": 1}, "kill of 1 worker"),
        ({"target": "record"}, "exception at a record"),
        ({"target": "disk", "for_s": 9}, "filling of the disk for 9 s"),
    ],
)
def test_a_fault_is_said_in_a_few_words(fields, said):
    assert Kill.model_validate(fields).said == said


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ({"target": "network", "signal": "kill"}, "the target network has cut or pause or slow"),
        ({"target": "driver", "signal": "cut"}, "target driver has kill or terminate or pause"),
        ({"target": "record", "signal": "kill"}, "signal kill: the target record has raise"),
        ({"target": "disk", "signal": "pause"}, "signal pause: the target disk has fill"),
        ({"target": "network", "delay_ms": 0}, "delay_ms"),
    ],
)
def test_a_fault_that_does_not_fit_its_target_is_refused(fields, mistake):
    with pytest.raises(ValidationError, match=mistake):
        Kill.model_validate(fields)


def test_a_fault_of_a_record_is_a_file_for_each_pipeline(tmp_path):
    two = ONE.model_copy(update={"name": "two"})
    has_happened = plant(Kill(target="record"), tmp_path, [ONE, two])
    for name in ("one.raise", "two.raise"):
        assert not has_happened()
        (tmp_path / name).unlink()
    assert has_happened()
    with pytest.raises(OSError, match="No such file"):
        plant(Kill(target="record"), tmp_path / "no-run", [ONE])


@pytest.fixture
def disk(tmp_path):
    """The folder of the pipeline `one` in that of a run, on a disk of its own."""
    folder = tmp_path / "one"
    try:
        mounted = SmallDisk(folder, 16)
    except OSError as error:
        pytest.skip(str(error))
    yield folder, mounted
    mounted.remove()


def test_a_full_disk_has_no_space_for_its_time_and_then_as_much_as_before(disk, tmp_path):
    folder, mounted = disk
    before = os.statvfs(folder).f_bavail
    assert not mounted.is_full
    has_happened = plant(Kill(target="disk", for_s=2), tmp_path, [ONE])
    assert not has_happened()
    await_true(has_happened)
    assert mounted.is_full
    with pytest.raises(OSError, match="No space left on device"):
        (folder / "state").write_bytes(bytes(100_000))
    (folder / "state").unlink()
    await_true(lambda: os.statvfs(folder).f_bavail == before)


def test_a_folder_that_is_no_disk_of_its_own_is_never_filled(tmp_path):
    command = [sys.executable, "-m", "services.conductor.ballast", str(tmp_path), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (
        1,
        f"{tmp_path} is not a disk of its own, so it is not filled",
    )


def await_true(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_is_not_there_is_not_killed(stack, tmp_path):
    data, _started = stack
    assert pids_of("broker", data, [ONE]) == []
    assert pids_of("worker", data, [ONE]) == []
    assert pids_of("driver", data, [ONE.model_copy(update={"name": "three"})]) == []
    assert pids_of("evaluator", tmp_path / "nowhere", [ONE]) == []


def test_a_process_that_has_the_id_of_one_long_gone_is_left_alone(stack):
    data, started = stack
    file = data / "stack.json"
    state = json.loads(file.read_text())
    for service in state["services"]:
        service["birth"] += "0"
    file.write_text(json.dumps(state))
    assert pids_of("evaluator", data, []) == []
    assert started["evaluator"].poll() is None


def test_a_worker_is_a_process_below_the_program_that_the_engine_names(tmp_path):
    java = tmp_path / "java"
    java.symlink_to("/bin/sleep")
    code = f"""
import subprocess, sys
start = "subprocess.Popen(['{java}', '600']).pid"
program = f"import subprocess; print({{start}}, {{start}}, flush=True); input()"
subprocess.run([sys.executable, "-c", program, "/data/runs/r1/one.plan.json"], input=b"")
"""
    runner = subprocess.Popen(
        [sys.executable, "-c", code.replace('input=b""', "stdin=sys.stdin")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    workers = sorted(map(int, runner.stdout.readline().split()))
    services = [{"name": "runner", "pid": runner.pid, "birth": birth_of(runner.pid)}]
    (tmp_path / "stack.json").write_text(json.dumps({"services": services}))
    try:
        other = ONE.model_copy(update={"engine": "calibration"})  # its engine has no workers
        assert pids_of("worker", tmp_path, [other]) == []
        assert sorted(pids_of("worker", tmp_path, [ONE])) == workers
        assert pids_of("worker", tmp_path, [ONE], most=1) == workers[:1]
    finally:
        for worker in workers:
            psutil.Process(worker).kill()
        runner.communicate()


def await_commands(root, arguments, count):
    """The process ids of `count` processes below another with these arguments, in order."""
    deadline_s = time.monotonic() + 60
    while True:
        below = root.children(recursive=True)
        pids = sorted(each.pid for each in below if each.cmdline()[1:] == arguments)
        if len(pids) == count:
            return pids
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_process_above_others_of_its_name_is_no_worker(tmp_path):
    # As the JVM of Spark's driver, which is above those of its executors.
    inner, outer = (tmp_path / folder / "java" for folder in ("inner", "outer"))
    for link, program in ((inner, "/bin/sleep"), (outer, "/bin/bash")):
        link.parent.mkdir()
        link.symlink_to(program)
    starts = f"{inner} 600 & {inner} 600 & echo $! up; wait"
    code = f"""
import subprocess, sys
program = "import subprocess; subprocess.run([{str(outer)!r}, '-c', {starts!r}])"
subprocess.run([sys.executable, "-c", program, "/data/runs/r1/one.plan.json"])
"""
    runner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    services = [{"name": "runner", "pid": runner.pid, "birth": birth_of(runner.pid)}]
    (tmp_path / "stack.json").write_text(json.dumps({"services": services}))
    try:
        assert runner.stdout.readline().endswith(b"up\n")
        executors = await_commands(psutil.Process(runner.pid), ["600"], 2)
        assert sorted(pids_of("worker", tmp_path, [ONE])) == executors
        assert pids_of("worker", tmp_path, [ONE], most=1) == executors[:1]
    finally:
        for process in psutil.Process(runner.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends with those below it
                process.kill()
        runner.communicate()
