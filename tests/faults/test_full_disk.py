"""The store's disk is temporarily full: the store reports it, loses nothing and continues."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from deploy.local.startup import log_path
from tests.faults.breakable_stack import (
    BreakableStack,
    breakable_stack,
    eventually,
    every_event_once,
    nothing_twice,
)

pytestmark = pytest.mark.faults

DISK_MEBIBYTES = 256
TRIES = 3


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The store's folder on a small disk of its own."""
    folder = tmp_path / "clickhouse"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MEBIBYTES}m", "tidegauge-tests", str(folder)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("This test mounts a small disk, which needs root and CAP_SYS_ADMIN.")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def ballast(disk: Path) -> Iterator[Callable[[], None]]:
    """Fill the disk, repeatedly if the store frees space; remove the filling after the block."""
    with TemporaryFile(dir=disk, buffering=0) as file:

        def fill() -> None:
            with suppress(OSError):
                while file.write(bytes(65_536)):
                    continue

        yield fill


def complaints(stack: BreakableStack) -> list[str]:
    """Lines of the store's log about missing disk space."""
    log = log_path(stack.settings.data, "store").read_text()
    return [line for line in log.splitlines() if "space" in line]


def test_a_store_without_room_says_so_and_projects_all_when_there_is_room(
    tmp_path: Path, disk: Path
) -> None:
    with breakable_stack(tmp_path) as stack:
        run = stack.begin_load()
        stack.await_measuring()
        with ballast(disk) as fill:
            eventually(lambda: fill() or len(complaints(stack)) >= TRIES, "it says so")
        assert all("insert_failed" in line for line in complaints(stack))
        report = stack.ended_clean(run)
        assert set(stack.restarts().values()) == {0}
        nothing_twice(stack, report)
        every_event_once(stack)
        stack.has_clean_run()


def test_a_store_that_is_started_without_room_goes_on_when_there_is_room(
    tmp_path: Path, disk: Path
) -> None:
    with breakable_stack(tmp_path) as stack:
        run = stack.begin_load()
        stack.await_measuring()
        with ballast(disk) as fill:
            eventually(lambda: fill() or complaints(stack), "it says so")
            stack.kill("store")
            eventually(
                lambda: fill() or (stack.restarts()["store"] and complaints(stack)),
                "the one that was started again says so too",
            )
        eventually(stack.is_ready, "it serves again")
        report = stack.ended_clean(run)
        nothing_twice(stack, report)
        every_event_once(stack)
