"""A stack on this machine: a real broker, and small services that stand in for ours."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from deploy.local.parts import KAFKA, Part, service
from deploy.local.processes import MARK, end, identify, is_alive, marked
from deploy.local.stack import Stack, StackError, StackStoppedError
from deploy.local.state import Identity, StateFile
from schemas.catalogue import CONTROL, LIFECYCLE, fixed_topics
from services.runtime.kafka import admin_client
from services.runtime.settings import ROOT, ServiceSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.runs import readers

pytestmark = pytest.mark.integration

DEADLINE_S = 60

# Ready at once. /crash makes it end with code 3. It has a child that ignores SIGTERM and, like
# Spark's Python workers, leads a process group of its own.
DOUBLE = """
import http.server, os, signal, subprocess, sys
STUBBORN = (
    "import os, signal; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('stubborn', flush=True); signal.pause()"
)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            print("the sea came in", flush=True)
            os._exit(3)
        self.send_response(200 if sys.argv[2] == "ready" else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
if sys.argv[2] == "ends":
    sys.exit("there is no water")
child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
child.stdout.readline()
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

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


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    return ServiceSettings(data=tmp_path / "data", base_port=free_base_port())


@pytest.fixture
def double(tmp_path: Path, settings: ServiceSettings) -> Callable[..., Part]:
    script = tmp_path / "double.py"
    script.write_text(DOUBLE)

    def make(name: str, behaviour: str = "ready", after: tuple[str, ...] = ()) -> Part:
        command = (sys.executable, str(script), str(settings.port(name)), behaviour)
        return service(name, command, after)

    return make


@pytest.fixture(autouse=True)
def nothing_is_left(settings: ServiceSettings) -> Iterator[None]:
    """Whatever a test did, its data folder has no stack afterwards, and no process."""
    yield
    found = StateFile(settings.data).read()
    Stack(settings).down()
    assert found is None or marked(found.stack_id) == ()


def stack_id(settings: ServiceSettings) -> str:
    found = StateFile(settings.data).read()
    assert found is not None
    return found.stack_id


def pid_of(stack: Stack, name: str) -> int:
    return next(s.pid for s in stack.status().services if s.name == name)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        threading.Event().wait(0.05)


def test_broker_and_services_start_in_order_and_nothing_of_them_is_left(settings, double):
    stack = Stack(settings, (KAFKA, double("store", after=("kafka",))))
    progress: list[str] = []
    stack.up(progress.append)
    try:
        assert [line.split(" after ")[0] for line in progress] == [
            "starting kafka",
            "kafka is ready",
            "starting store",
            "store is ready",
        ]
        assert not stack.attached
        status = stack.status().as_dict()
        assert status["running"] is True
        assert status["kafka"] == f"127.0.0.1:{settings.base_port}"
        assert [(s["name"], s["state"]) for s in status["services"]] == [
            ("kafka", "ready"),
            ("store", "ready"),
        ]
        admin = admin_client(settings, "test")
        assert set(admin.list_topics(timeout=10).topics) == {t.name for t in fixed_topics()}
        control = ConfigResource(ResourceType.TOPIC, CONTROL)
        config = admin.describe_configs([control])[control].result(timeout=10)
        assert config["message.timestamp.type"].value == "LogAppendTime"
        mark = stack_id(settings)
        assert len(marked(mark)) == 3  # broker, store, and the store's stubborn child
    finally:
        stack.close()
    assert marked(mark) == ()
    assert not stack.status().running
    assert stack.status().services == ()


def test_a_broker_keeps_its_topics_when_the_stack_starts_again(settings):
    stack = Stack(settings, (KAFKA,))
    cluster_ids = []
    for _ in range(2):
        stack.up()
        cluster_ids.append(admin_client(settings, "test").list_topics(timeout=10).cluster_id)
        stack.close()
    assert cluster_ids[0] == cluster_ids[1]


def test_a_second_stack_of_the_same_folder_attaches_and_leaves_it_running(settings, double):
    parts = (double("store"),)
    first, second = Stack(settings, parts), Stack(settings, parts)
    first.up()
    progress: list[str] = []
    second.up(progress.append)
    assert second.attached
    assert progress == [f"attached to the stack that runs at base port {settings.base_port}"]
    second.close()
    assert first.status().running
    first.check()
    first.close()
    assert not second.status().running


def test_of_two_that_start_at_once_one_starts_and_the_other_attaches(settings, double):
    parts = (double("store"),)
    stacks = [Stack(settings, parts) for _ in range(2)]
    threads = [threading.Thread(target=stack.up) for stack in stacks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(stack.attached for stack in stacks) == [False, True]
    for stack in stacks:
        stack.close()


def test_two_stacks_run_side_by_side(settings, double, tmp_path):
    other = settings.model_copy(
        update={"data": tmp_path / "other", "base_port": settings.base_port + 10}
    )
    command = (sys.executable, str(tmp_path / "double.py"), str(other.port("store")), "ready")
    here, there = Stack(settings, (double("store"),)), Stack(other, (service("store", command),))
    here.up()
    there.up()
    here.close()
    assert there.status().running
    there.close()


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
        "store was ended by SIGKILL; starting it again in 0.5 s (restart 1 of 5 in 10 min)"
    )
    assert progress[1].startswith("store is ready again after ")
    found = {s.name: (s.state, s.restarts) for s in owner.status().services}
    assert found == {"store": ("ready", 1), "evaluator": ("ready", 0)}
    assert pid_of(owner, "store") != before
    assert len(marked(stack_id(settings))) == 4  # two services, each with its stubborn child
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
    assert str(caught.value) == f"evaluator ended with exit code 3; its log is {log}"
    assert caught.value.log_tail == ("listening", "the sea came in")
    stack.close()


def crash(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(OSError, match=r"closed connection|reset by peer"):
        urllib.request.urlopen(f"http://127.0.0.1:{settings.port(name)}/crash", timeout=10)


def test_the_owner_of_a_stack_that_another_stops_is_told_so(settings, double):
    parts = (double("store"),)
    owner = Stack(settings, parts)
    owner.up()
    assert Stack(settings, parts).down()
    with pytest.raises(StackStoppedError, match="stopped by another tidegauge"):
        owner.check()
    assert not Stack(settings, parts).down()


def test_a_service_that_ends_at_once_stops_the_start_and_the_rest(settings, double):
    stack = Stack(settings, (double("store"), double("evaluator", "ends")))
    with pytest.raises(StackError, match=r"^evaluator ended with exit code 1; ") as caught:
        stack.up()
    assert caught.value.log_tail == ("there is no water",)
    assert stack.status().services == ()


def test_a_service_that_does_not_become_ready_is_named_with_its_last_lines(settings, double):
    stack = Stack(settings, (double("store", "unready"),), ready_deadline_s=3)
    with pytest.raises(StackError, match=r"^store was not ready within 3 s; ") as caught:
        stack.up()
    assert caught.value.log_tail == ("listening",)


def test_a_taken_port_is_named_with_who_has_it(settings, double):
    with (
        socket.create_server(("127.0.0.1", settings.port("store"))),
        pytest.raises(StackError) as caught,
    ):
        Stack(settings, (double("store"),)).up()
    text = str(caught.value)
    assert text.startswith(f"port {settings.port('store')}, which store needs, is taken by ")
    assert f"(pid {os.getpid()})" in text
    assert caught.value.exit_code == 2


def test_another_base_port_for_a_running_stack_is_refused_and_the_stack_lives(settings, double):
    stack = Stack(settings, (double("store"),))
    stack.up()
    moved = settings.model_copy(update={"base_port": settings.base_port + 10})
    other = Stack(moved, (double("store"),))
    with pytest.raises(StackError, match=f"runs at base port {settings.base_port}, not"):
        other.up()
    other.close()
    stack.check()
    stack.close()


def test_ctrl_c_while_starting_ends_everything(settings, double):
    stack = Stack(settings, (double("store"), double("evaluator", "unready")))
    seen: list[str] = []

    def interrupt(text: str) -> None:
        seen.append(stack_id(settings))
        if text.startswith("store is ready"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stack.up(interrupt)
    assert marked(seen[0]) == ()
    assert stack.status().services == ()


def test_after_a_killed_console_down_finds_and_ends_what_was_left(settings, double, tmp_path):
    console = start_console(settings, tmp_path)
    left = marked(stack_id(settings))
    assert len(left) == 3  # broker, store, and the store's stubborn child
    guest = Stack(settings, (KAFKA, double("store", after=("kafka",))))
    guest.up()
    assert guest.attached
    console.kill()
    console.wait(DEADLINE_S)
    guest.check()  # everything lives, though nobody looks after it
    # Even when the service itself is gone and only its child is there.
    os.kill(pid_of(guest, "store"), signal.SIGKILL)
    with pytest.raises(StackError, match=r"^store ended; its log is "):
        eventually(lambda: guest.check() is not None, "the guest notices")
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
    assert progress[0] == "ending what an earlier start left behind"
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
        end([Identity(real.pid, real.create_time - 3600)], "some-stack", 0)
        assert stranger.poll() is None
        assert is_alive(real)
    finally:
        stranger.communicate(b"\n", timeout=DEADLINE_S)


def test_a_file_that_is_no_state_is_said_to_be_none(settings, double):
    settings.data.mkdir()
    path = settings.data / "stack.json"
    path.write_text("{")
    try:
        with pytest.raises(StackError, match=r"stack\.json does not say what runs .*; remove it$"):
            Stack(settings, (double("store"),)).up()
    finally:
        path.unlink()


def test_a_detached_stack_outlives_its_starter_heals_itself_and_obeys_down(settings):
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
        "collector was ended by SIGKILL",
        "store was ended by SIGKILL",
    ]
    eventually(lambda: {s.state for s in stack.status().services} == {"ready"}, "all serve")
    restarts = {s.name: s.restarts for s in stack.status().services if s.restarts}
    assert restarts == {"store": 1, "collector": 1}
    assert Stack(settings).down()
    assert not is_alive(found.owner)
    assert marked(found.stack_id) == ()


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
    assert caught.value.exit_code == 2


def test_a_detached_stack_stops_whole_when_a_part_may_not_be_started_again(settings, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_MAX_RESTARTS", "0")
    stack = Stack(settings)
    stack.up_detached()
    found = StateFile(settings.data).read()
    assert found is not None
    os.kill(pid_of(stack, "collector"), signal.SIGKILL)
    eventually(lambda: not is_alive(found.owner), "the owner gives up")
    assert marked(found.stack_id) == ()
    log = (settings.data / "logs" / "stack.log").read_text()
    assert "tidegauge: collector was ended by SIGKILL; its log is " in log
