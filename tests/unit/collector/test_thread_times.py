"""How long the threads of a process waited for a processor, and ran as compilers of a JVM."""

import os
from pathlib import Path

import psutil
import pytest

from services.collector.processes import ThreadTimes

pytestmark = pytest.mark.unit

C2 = "C2 CompilerThre"


def threads(proc: Path, **times: tuple[float, float, str]) -> None:
    """Give process 7 these threads, named tN: seconds run, seconds waited, name."""
    tasks = proc / "7" / "task"
    for old in tasks.glob("*/*"):
        old.unlink()
    for old in tasks.glob("*"):
        old.rmdir()
    for number, (run, waited, name) in times.items():
        task = tasks / number.removeprefix("t")
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"{round(run * 1e9)} {round(waited * 1e9)} 5\n")
        (task / "comm").write_text(f"{name}\n")


def read(times: ThreadTimes, is_jvm: bool = True) -> tuple[float, float]:
    """Seconds waited and compiled."""
    found = times.read(is_jvm)
    assert found is not None
    return found.waited, found.compiled


def test_what_all_threads_waited_adds_up(tmp_path: Path) -> None:
    threads(tmp_path, t7=(1, 1.5, "java"), t8=(1, 0.25, "main"))
    assert read(ThreadTimes(7, tmp_path)) == pytest.approx((1.75, 0))


def test_what_a_thread_waited_stays_when_it_ends(tmp_path: Path) -> None:
    times = ThreadTimes(7, tmp_path)
    threads(tmp_path, t7=(1, 1, "java"), t8=(1, 2, C2))
    assert read(times) == pytest.approx((3, 1))
    threads(tmp_path, t7=(1, 1.5, "java"))
    assert read(times) == pytest.approx((3.5, 1))


def test_a_new_thread_with_an_old_number_counts_from_its_begin(tmp_path: Path) -> None:
    times = ThreadTimes(7, tmp_path)
    threads(tmp_path, t7=(1, 1, "java"), t8=(2, 2, C2))
    read(times)
    threads(tmp_path, t7=(1, 1, "java"), t8=(0.5, 0.5, "worker"))
    assert read(times) == pytest.approx((3.5, 2))
    threads(tmp_path, t7=(1, 1, "java"), t8=(0.25, 0.5, "C1 CompilerThre"))
    assert read(times) == pytest.approx((4, 2.25))


def test_compilers_count_the_time_that_they_run_not_that_they_wait(tmp_path: Path) -> None:
    times = ThreadTimes(7, tmp_path)
    names = {"t7": "java", "t8": "C1 CompilerThre", "t9": C2, "t10": "C2-like", "t11": "VM Thread"}
    for run in (1, 3):
        threads(tmp_path, **{each: (run, 10 * run, name) for each, name in names.items()})
        assert read(times) == pytest.approx((50 * run, 2 * run))
    assert read(ThreadTimes(7, tmp_path), is_jvm=False) == pytest.approx((150, 0))


def test_a_thread_is_known_once_it_has_set_its_name(tmp_path: Path) -> None:
    times = ThreadTimes(7, tmp_path)
    threads(tmp_path, t7=(1, 0, "java"), t8=(1, 0, "java"))
    assert read(times) == (0, 0)
    threads(tmp_path, t7=(1, 0, "java"), t8=(3, 0, C2))
    assert read(times) == pytest.approx((0, 2))


def test_nothing_is_known_where_the_system_does_not_count(tmp_path: Path) -> None:
    assert ThreadTimes(7, tmp_path).read(is_jvm=True) is None


@pytest.mark.parametrize("text", ["", "12", "garbage\n"])
def test_a_line_of_another_kind_is_not_known(tmp_path: Path, text: str) -> None:
    threads(tmp_path, t7=(1, 1, "java"))
    (tmp_path / "7" / "task" / "7" / "schedstat").write_text(text)
    assert ThreadTimes(7, tmp_path).read(is_jvm=True) is None


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux counts it")
def test_this_process_has_waited_some_time_that_only_grows() -> None:
    times = ThreadTimes(os.getpid())
    first, second = read(times, is_jvm=False), read(times, is_jvm=False)
    assert 0 <= first[0] <= second[0]
