"""How long the threads of a process waited for a processor."""

import os
from pathlib import Path

import psutil
import pytest

from services.collector.processes import RunQueue

pytestmark = pytest.mark.unit


def threads(proc: Path, **waited_ns: int) -> None:
    """Give process 7 these threads, named tN."""
    tasks = proc / "7" / "task"
    for old in tasks.glob("*/schedstat"):
        old.unlink()
        old.parent.rmdir()
    for name, waited in waited_ns.items():
        path = tasks / name.removeprefix("t") / "schedstat"
        path.parent.mkdir(parents=True)
        path.write_text(f"1000 {waited} 5\n")


def test_what_all_threads_waited_adds_up(tmp_path: Path) -> None:
    threads(tmp_path, t7=1_500_000_000, t8=250_000_000)
    assert RunQueue(7, tmp_path).waited_s() == pytest.approx(1.75)


def test_what_a_thread_waited_stays_when_it_ends(tmp_path: Path) -> None:
    run_queue = RunQueue(7, tmp_path)
    threads(tmp_path, t7=1_000_000_000, t8=2_000_000_000)
    assert run_queue.waited_s() == pytest.approx(3)
    threads(tmp_path, t7=1_500_000_000)
    assert run_queue.waited_s() == pytest.approx(3.5)


def test_a_new_thread_with_an_old_number_counts_from_its_begin(tmp_path: Path) -> None:
    run_queue = RunQueue(7, tmp_path)
    threads(tmp_path, t7=2_000_000_000)
    run_queue.waited_s()
    threads(tmp_path, t7=500_000_000)
    assert run_queue.waited_s() == pytest.approx(2.5)


def test_nothing_is_known_where_the_system_does_not_count(tmp_path: Path) -> None:
    assert RunQueue(7, tmp_path).waited_s() is None


@pytest.mark.parametrize("text", ["", "12", "garbage\n"])
def test_a_line_of_another_kind_is_not_known(tmp_path: Path, text: str) -> None:
    threads(tmp_path, t7=1)
    (tmp_path / "7" / "task" / "7" / "schedstat").write_text(text)
    assert RunQueue(7, tmp_path).waited_s() is None


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux counts it")
def test_this_process_has_waited_some_time_that_only_grows() -> None:
    run_queue = RunQueue(os.getpid())
    first, second = run_queue.waited_s(), run_queue.waited_s()
    assert first is not None
    assert second is not None
    assert 0 <= first <= second
