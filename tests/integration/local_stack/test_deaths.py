"""A stack of which a part, the console that started it, or the owner dies."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from deploy.local.parts import KAFKA
from deploy.local.processes import MARK, end, identify, is_alive, marked
from deploy.local.stack import Stack, StackError, StackStoppedError
from deploy.local.startup import check_ports
from deploy.local.state import Identity, StateFile
from schemas.catalogue import LIFECYCLE
from services.console.listing import show_status
from services.runtime.settings import ROOT, ServiceSettings
from tests.integration.local_stack.stand_in import DEADLINE_S, eventually, pid_of, stack_id
from tests.integration.runs import readers

pytestmark = pytest.mark.integration

CONSOLE = """
import signal, sys
from pathlib import Path
from deploy.local.parts import KAFKA, service
from deploy.local.stack import Stack
from services.runtime.settings import ServiceSettings
settings = ServiceSettings(data=Path(sys.argv[1]), base_port=int(sys.argv[2]))
double = (sys.executable, sys.argv[3], str(settings.port("store")), "ready")
Stack(settings, (KAFKA, service("store", double, ("kafka",)))).up()
print("up", flush=True)
signal.pause()
"""


def test_a_part_that_dies_is_started_again_and_all_are_told(settings, double):
    parts = (double("store"), double("evaluator"))
    owner, guest = Stack(settings, parts), Stack(settings, parts)
    progress: list[str] = []
    owner.up(progress.append)
    guest.up()
    del progress[:]
    before = pid_of(owner, "store")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: owner.status().services[0].state == "restarting", "it is dead")
    assert owner.status().running
    eventually(lambda: (guest.check(), owner.check(), len(progress) == 2)[-1], "it serves again")
    assert progress[0] == (
        "store was terminated by SIGKILL; restarting it in 0.5 s (restart 1 of 5 in 10 min)"
    )
    assert progress[1].startswith("store is ready again after ")
    found = {s.name: (s.state, s.restarts) for s in owner.status().services}
    assert found == {"store": ("ready", 1), "evaluator": ("ready", 0)}
    assert pid_of(owner, "store") != before
    # Two services, each with its stubborn child.
    eventually(lambda: len(marked(stack_id(settings))) == 4, "all of them are there")
    guest.check()
    owner.close()


def test_without_a_budget_a_death_is_told_with_exit_code_and_last_lines(
    settings, double, monkeypatch
):
    monkeypatch.setenv("TIDEGAUGE_MAX_RESTARTS", "0")
    stack = Stack(settings, (double("store"), double("evaluator")))
    stack.up()
    crash(settings, "evaluator")
    with pytest.raises(StackError) as caught:
        eventually(lambda: stack.check() is not None, "the stack gives up")
    log = settings.data / "logs" / "evaluator.log"
    assert str(caught.value) == f"evaluator exited with code 3; its log is {log}"
    assert caught.value.log_tail == ("listening", "the sea came in")
    stack.close()


def test_a_part_that_dies_of_a_jar_that_was_cut_off_is_told_by_the_jar(settings, double, tmp_path):
    jars = tmp_path / "jars"
    shutil.copytree(ROOT / ".jars", jars)
    stack = Stack(settings.model_copy(update={"jars": jars}), (double("store"),))
    progress: list[str] = []
    stack.up(progress.append)
    whole = (jars / "broker" / "kafka-raft-4.3.1.jar").read_bytes()
    (jars / "broker" / "kafka-raft-4.3.1.jar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StackError, match=r"kafka-raft-4\.3\.1\.jar is truncated or modified: "):
        Stack(stack.settings, (double("store"),)).up()
    crash(settings, "store")
    refused = "store did not start: .*kafka-raft-4.3.1.jar is truncated or modified: .*; remove .*"
    eventually(
        lambda: (stack.check(), any(re.match(refused, text) for text in progress))[-1],
        "the jar is named",
    )
    (jars / "broker" / "kafka-raft-4.3.1.jar").write_bytes(whole)
    eventually(
        lambda: (stack.check(), stack.status().services[0].state == "ready")[-1], "it serves again"
    )
    stack.close()


def test_where_nothing_can_be_written_any_more_the_stack_ends_whole(settings, double):
    """As on a full disk: the recorded state cannot be replaced."""
    stack = Stack(settings, (double("store"), double("evaluator")))
    stack.up()
    left = marked(stack_id(settings))
    (settings.data / f"stack.{os.getpid()}").mkdir()  # blocks every new file
    crash(settings, "evaluator")
    with pytest.raises(StackError, match="cannot be used: Is a directory"):
        eventually(lambda: stack.check() is not None, "the stack gives up")
    stack.close()
    assert not any(is_alive(identity) for identity in left)
    assert StateFile(settings.data).read() is None


def crash(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(OSError, match=r"closed connection|reset by peer"):
        urllib.request.urlopen(f"http://127.0.0.1:{settings.port(name)}/crash", timeout=10)


def test_where_the_folder_is_gone_the_stack_ends_whole(settings, double):
    stack = Stack(settings, (double("store"), double("evaluator")))
    stack.up()
    left = marked(stack_id(settings))
    assert left
    shutil.rmtree(settings.data)
    stack.close()
    assert not any(is_alive(identity) for identity in left)


def test_down_ends_a_stack_whose_record_is_gone_and_its_owner_is_told(settings, double):
    stack = Stack(settings, (double("store"), double("evaluator")))
    stack.up()
    left = marked(stack_id(settings))
    shutil.rmtree(settings.data)
    assert Stack(settings).down()
    assert not any(is_alive(identity) for identity in left)
    with pytest.raises(StackStoppedError):
        stack.check()
    assert not Stack(settings).down()


def test_after_a_killed_console_down_finds_and_ends_what_was_left(settings, double, tmp_path):
    console = start_console(settings, tmp_path)
    left = marked(stack_id(settings))
    assert len(left) == 3  # broker, store, and the store's stubborn child
    guest = Stack(settings, (KAFKA, double("store", after=("kafka",))))
    guest.up()
    assert guest.attached
    console.kill()
    console.wait(DEADLINE_S)
    guest.check()  # everything is running, although nothing supervises it
    # Even if the service itself is gone and only its child remains.
    os.kill(pid_of(guest, "store"), signal.SIGKILL)
    with pytest.raises(StackError, match=r"^store ended; its log is "):
        eventually(lambda: guest.check() is not None, "the guest notices")
    with pytest.raises(
        StackError, match=r"kafka needs, is taken by .* end it with ./tidegauge down$"
    ):
        check_ports(settings, ["kafka"])
    screen = Console(file=StringIO())
    show_status(screen, settings, guest.status(), as_json=False)
    assert re.search(
        r"not running.*kafka.*End them with: ./tidegauge down", screen.file.getvalue(), re.S
    )
    assert Stack(settings, (KAFKA, double("store", after=("kafka",)))).down()
    assert not any(is_alive(identity) for identity in left)


def test_after_a_killed_console_up_ends_what_was_left_and_starts_anew(settings, double, tmp_path):
    console = start_console(settings, tmp_path)
    mark = stack_id(settings)
    console.kill()
    console.wait(DEADLINE_S)
    stack = Stack(settings, (KAFKA, double("store", after=("kafka",))))
    progress: list[str] = []
    stack.up(progress.append)
    assert progress[0] == "stopping processes left by an earlier start"
    assert marked(mark) == ()
    assert stack.status().running
    stack.close()


def start_console(settings: ServiceSettings, folder: Path) -> subprocess.Popen[str]:
    """Another process that starts a broker and a store, and waits."""
    command = [sys.executable, "-c", CONSOLE, str(settings.data), str(settings.base_port)]
    command.append(str(folder / "double.py"))
    console = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert console.stdout is not None
    with closing(console.stdout) as output:
        assert output.readline() == "up\n"
    return console


def test_a_process_that_got_the_pid_of_one_of_ours_is_left_alone():
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        real = identify(stranger.pid)
        end([Identity(real.pid, "another birth")], "some-stack", 0)
        assert stranger.poll() is None
        assert is_alive(real)
    finally:
        stranger.communicate(b"\n", timeout=DEADLINE_S)


def test_a_detached_stack_outlives_its_starter_and_heals_itself_until_it_gives_up(
    settings, monkeypatch
):
    monkeypatch.setenv("TIDEGAUGE_MAX_RESTARTS", "1")  # of each part
    stack = Stack(settings)
    progress: list[str] = []
    stack.up_detached(progress.append)
    assert progress[-1] == "the stack is up"
    found = StateFile(settings.data).read()
    assert found is not None
    assert found.detached
    assert stack.status().running
    assert psutil.Process(found.owner.pid).environ().get(MARK) is None
    with readers(settings, LIFECYCLE) as (lifecycle,):
        for name in ("store", "collector"):
            os.kill(pid_of(stack, name), signal.SIGKILL)
        lifecycle.until("", lambda events: count(events, "part_up") == 2, DEADLINE_S)
        down = [json.loads(e["detail"]) for e in lifecycle.records("") if e["event"] == "part_down"]
    assert sorted(each["reason"] for each in down) == [
        "collector was terminated by SIGKILL",
        "store was terminated by SIGKILL",
    ]
    eventually(lambda: {s.state for s in stack.status().services} == {"ready"}, "all serve")
    restarts = {s.name: s.restarts for s in stack.status().services if s.restarts}
    assert restarts == {"store": 1, "collector": 1}
    os.kill(pid_of(stack, "collector"), signal.SIGKILL)
    eventually(lambda: not is_alive(found.owner), "the owner gives up")
    assert marked(found.stack_id) == ()
    log = (settings.data / "logs" / "stack.log").read_text()
    assert "tidegauge: collector was terminated by SIGKILL after 1 restart; its log" in log


def count(events: list[dict[str, Any]], name: str) -> int:
    return sum(event["event"] == name for event in events)


def test_a_detached_stack_that_cannot_start_says_why(settings):
    with (
        socket.create_server(("127.0.0.1", settings.port("evaluator"))),
        pytest.raises(StackError) as caught,
    ):
        Stack(settings).up_detached()
    assert f"port {settings.port('evaluator')}, which evaluator needs, is taken" in str(
        caught.value
    )
    assert not caught.value.log_tail  # the process that failed has already printed it
