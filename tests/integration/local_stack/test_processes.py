"""How a child is started, and how it ended when the kernel takes its time to say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.local.processes import exit_code, identify, is_alive, spawn

pytestmark = pytest.mark.integration

# Its first thread is gone, as that of a killed process is while its other threads are dying.
DYING = """
import ctypes, os, signal, sys, threading, time
def die():
    sys.stdin.read(1)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=die).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_zombie_with_threads_left_is_waited_for_until_it_can_say_how_it_ended():
    with subprocess.Popen([sys.executable, "-c", DYING], stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            pass
        assert not is_alive(identity)
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.write(b"x")
        child.stdin.flush()
        assert exit_code(child) == -signal.SIGKILL


def test_a_zombie_that_does_not_go_has_no_exit_code_yet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("deploy.local.processes.DYING_TIMEOUT_S", 0.01)
    with subprocess.Popen([sys.executable, "-c", DYING], stdin=subprocess.PIPE) as child:
        assert exit_code(child) is None
        child.kill()


@pytest.mark.parametrize(("niceness", "more"), [(0, 0), (3, 3), (40, 19)])
def test_a_child_gives_way_by_as_much_as_was_asked(tmp_path: Path, niceness: int, more: int):
    command = [sys.executable, "-c", "input()"]
    with spawn(command, tmp_path / "log", tmp_path, os.environ, niceness) as child:
        assert psutil.Process(child.pid).nice() == min(os.nice(0) + more, 19)
