"""Starting child processes, and detecting their end even if the kernel reports it late."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.local.processes import MARK, end, exit_code, identify, is_alive, spawn
from deploy.local.state import Identity
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.integration

# Its main thread has exited, like that of a killed process whose other threads are still dying.
DYING = """
import ctypes, os, signal, sys, threading, time
def die():
    sys.stdin.read(1)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=die).start()
ctypes.CDLL(None).pthread_exit(None)
"""

# The kernel needs some time to free its memory; only then are its ports free.
LARGE = """
import socket, sys
memory = b"x" * 512 * 1024**2
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
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


def test_what_was_known_by_its_mark_only_has_let_go_of_its_port_when_it_was_ended(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("deploy.local.processes.POLL_S", 0.001)
    port = free_base_port()
    with subprocess.Popen(
        [sys.executable, "-c", LARGE, str(port)],
        env={**os.environ, MARK: "some-stack"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"listening\n"
        end([Identity(child.pid, "of a leader that is gone")], "some-stack", 10)
        with socket.socket() as successor:
            successor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            successor.bind(("127.0.0.1", port))
