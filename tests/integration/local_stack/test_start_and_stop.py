"""A stack on this machine: a real broker, and small test doubles of the services."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from deploy.local.parts import KAFKA, service
from deploy.local.processes import marked
from deploy.local.stack import Stack, StackError, StackStoppedError
from deploy.local.startup import settings_environment
from schemas.catalogue import CONTROL, fixed_topics
from services.runtime.kafka import admin_client
from services.runtime.settings import ROOT
from tests.integration.local_stack.stand_in import DEADLINE_S, stack_id

pytestmark = pytest.mark.integration


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
        assert set(admin.list_topics(timeout=30).topics) == {t.name for t in fixed_topics()}
        control = ConfigResource(ResourceType.TOPIC, CONTROL)
        config = admin.describe_configs([control])[control].result(timeout=30)
        assert config["message.timestamp.type"].value == "LogAppendTime"
        mark = stack_id(settings)
        assert len(marked(mark)) == 3  # broker, store, and the store's stubborn child
    finally:
        stack.close()
    assert marked(mark) == ()
    assert not stack.status().running
    assert stack.status().services == ()


def test_a_broker_keeps_its_topics_and_nothing_temporary_when_the_stack_starts_again(settings):
    stack = Stack(settings, (KAFKA,))
    cluster_ids, passwords = [], set()
    left = settings.data / "kafka" / "tmp" / "liblz4-java.so"
    for _ in range(2):
        stack.up()
        cluster_ids.append(admin_client(settings, "test").list_topics(timeout=30).cluster_id)
        passwords.add((settings.data / "secrets" / "kafka-broker").read_text())
        assert not left.exists()
        left.touch()  # like the native libraries that a killed broker leaves
        stack.close()
    assert cluster_ids[0] == cluster_ids[1]
    assert len(passwords) == 2  # the broker's own, for each start


def test_a_run_attaches_to_a_stack_that_has_more_parts_than_it_needs(settings, double):
    first = Stack(settings, (double("store"), double("collector")))
    second = Stack(settings, (double("store"),))
    first.up()
    second.up()
    assert second.attached
    second.close()
    assert first.status().running
    first.close()


def test_a_run_that_needs_more_parts_does_not_stop_the_stack_of_another(settings, double):
    parts = (double("store"), double("evaluator"))
    owner = Stack(settings, parts[:1])
    owner.up()
    with pytest.raises(StackError, match=r"runs without evaluator; wait until it ends, or stop it"):
        Stack(settings, parts).up()
    owner.check()
    owner.close()


def test_a_second_stack_of_the_same_folder_attaches_and_leaves_it_running(settings, double):
    parts = (double("store"),)
    first, second = Stack(settings, parts), Stack(settings, parts)
    first.up()
    progress: list[str] = []
    second.up(progress.append)
    assert second.attached
    assert progress == [f"attached to the stack at base port {settings.base_port}"]
    second.close()
    assert first.status().running
    first.check()
    first.close()
    assert not second.status().running


def test_a_stack_that_runs_at_other_ports_is_told_by_its_status(settings, double):
    parts = (double("store"),)
    elsewhere = Stack(settings.model_copy(update={"base_port": settings.base_port + 10}), parts)
    stack = Stack(settings, parts)
    stack.up()
    said = f"runs at base port {settings.base_port}, not {settings.base_port + 10}; choose the same"
    for ask in (elsewhere.status, elsewhere.up):
        with pytest.raises(StackError, match=said):
            ask()
    stack.check()
    stack.close()
    assert not elsewhere.status().running


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


def test_the_owner_of_a_stack_that_another_stops_is_told_so(settings, double):
    parts = (double("store"),)
    owner = Stack(settings, parts)
    owner.up()
    assert Stack(settings, parts).down()
    with pytest.raises(StackStoppedError, match="stopped by another tidegauge"):
        owner.check()
    assert not Stack(settings, parts).down()


def test_a_folder_that_does_not_exist_has_no_stack_and_is_not_created(settings):
    missing = settings.model_copy(update={"data": settings.data / "missing"})
    assert not Stack(missing, ()).down()
    assert not missing.data.exists()


def test_a_service_that_ends_at_once_stops_the_start_and_the_rest(settings, double):
    stack = Stack(settings, (double("store"), double("evaluator", "ends")))
    with pytest.raises(StackError, match=r"^evaluator exited with code 1; ") as caught:
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda port: {"base_port": port + 10}, "at base port PORT, not"),
        (
            lambda _port: {"kafka_bootstrap": "kafka1:9092"},
            "with the Kafka 127.0.0.1:PORT, not kafka1:9092",
        ),
    ],
    ids=["base port", "kafka"],
)
def test_other_settings_for_a_running_stack_are_refused_and_the_stack_lives(
    settings, double, change, said
):
    parts = (double("kafka"), double("store"))
    stack = Stack(settings, parts)
    stack.up()
    # Without a broker, if it is external.
    other = settings.model_copy(update=change(settings.base_port))
    other_stack = Stack(other, parts[1:] if other.kafka_bootstrap else parts)
    said = said.replace("PORT", str(settings.base_port))
    with pytest.raises(StackError, match=re.escape(f"runs {said}")):
        other_stack.up()
    other_stack.close()
    stack.check()
    stack.close()


def test_a_folder_that_cannot_be_used_is_one_sentence(settings, double):
    settings.data.parent.mkdir(parents=True, exist_ok=True)
    settings.data.write_text("not a folder")
    stack = Stack(settings, (double("store"),))
    for verb in (stack.up, stack.up_detached, stack.down):
        with pytest.raises(StackError, match=f"^{settings.data}[^ ]* cannot be used: "):
            verb()
    settings.data.unlink()


def test_engines_of_one_name_are_one_sentence_before_anything_starts(settings, tmp_path):
    shutil.copytree(ROOT / "engines" / "python", tmp_path / "python")
    done = subprocess.run(
        [sys.executable, "-m", "deploy.local", "up"],
        env=os.environ | settings_environment(settings) | {"TIDEGAUGE_ENGINES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    told = f"Two engines are named 'calibration': {ROOT}/engines/python and {tmp_path}/python."
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"tidegauge: {told}\n")


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


def test_a_file_that_is_no_state_is_said_to_be_none(settings, double):
    settings.data.mkdir(mode=0o700)
    path = settings.data / "stack.json"
    path.write_text("{")
    try:
        with pytest.raises(StackError, match=r"stack\.json cannot be parsed .*; remove it$"):
            Stack(settings, (double("store"),)).up()
    finally:
        path.unlink()
