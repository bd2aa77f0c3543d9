"""Which processors the program of a pipeline may use."""

import os
import subprocess
import sys

import pytest

from services.runner.core_limits import PERIOD_US, core_limit

pytestmark = pytest.mark.unit

PRINT = "import os; print(sorted(os.sched_getaffinity(0)))"


def run(limit, *words):
    with limit.inherited():
        return subprocess.run(limit.command(words), capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{PERIOD_US // 2}"}),
        (2, {"cpu.max": f"{PERIOD_US // 2} {PERIOD_US}"}),
    ],
)
def test_a_group_has_the_quota_and_the_program_enters_it(tmp_path, version, files):
    limit = core_limit(0.5, [(version, tmp_path)])
    assert {name: (limit.group / name).read_text() for name in files} == files
    process = subprocess.Popen(
        limit.command([sys.executable, "-c", "print('two  words', end='')"]), stdout=subprocess.PIPE
    )
    assert process.communicate()[0] == b"two  words"
    assert (limit.group / "cgroup.procs").read_text() == f"{process.pid}\n"


def test_without_groups_whole_processors_are_an_affinity_of_the_program_alone():
    mine = os.sched_getaffinity(0)
    limit = core_limit(1, [])
    assert run(limit, sys.executable, "-c", PRINT).stdout == f"[{max(mine)}]\n"
    assert os.sched_getaffinity(0) == mine
    assert run(core_limit(None), sys.executable, "-c", PRINT).stdout == f"{sorted(mine)}\n"


@pytest.mark.parametrize(
    ("cores", "says"),
    [
        (0.5, "cores = 0.5 needs a control group with a quota, which this user may not make here"),
        (5_000, "cores = 5000: there are "),
    ],
)
def test_what_cannot_be_limited_is_refused(cores, says):
    with pytest.raises(OSError, match=says):
        core_limit(cores, [])


def test_the_kernel_confines_a_program_and_the_group_goes_with_it():
    cores = min(1, len(os.sched_getaffinity(0)))
    limit = core_limit(cores)
    group = limit.group
    if group is None:  # this user may make none
        assert len(limit.allowed) == cores
        return
    where = run(limit, "cat", "/proc/self/cgroup").stdout
    assert f"/{group.name}\n" in where
    limit.remove()
    assert not group.exists()


def test_groups_of_a_killed_runner_are_removed_by_the_next(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, used = tmp_path / f"tidegauge-{ended.pid}-0", tmp_path / f"tidegauge-{ended.pid}-1"
    running = tmp_path / f"tidegauge-{os.getppid()}-0"
    for folder in (left, used, running):
        folder.mkdir()
    (used / "process").touch()  # the kernel refuses one in use
    first, second = (core_limit(0.5, [(2, tmp_path)]).group for _ in range(2))
    assert not left.exists()
    assert all(folder.exists() for folder in (used, running, first, second))
