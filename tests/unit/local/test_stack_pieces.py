"""The state file, the stop order, logs, and error messages."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.broker import ONLY_QUICK, may_know, server_properties
from deploy.local.java import Java
from deploy.local.parts import SERVICES, StackPart, lasting_parts, stack_parts
from deploy.local.processes import stop_order
from deploy.local.startup import check_config, check_room, settings_environment
from deploy.local.state import (
    Identity,
    LockTimeoutError,
    ServiceState,
    StackError,
    StackState,
    StateFile,
    crashed,
    tail,
    worn_out,
)
from services.runtime import logs
from services.runtime.ports import PORT_OFFSETS
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit

STATE = StackState("abc", "running", "127.0.0.1", 19300, Identity(1, "b/2"), True)


def part(name: str, *after: str) -> StackPart:
    return StackPart(name, command=lambda _s, _j: (), ready=lambda _s: True, after=after)


def started(*names: str) -> list[ServiceState]:
    return [ServiceState(name, pid, "b/0", "ready") for pid, name in enumerate(names, 2)]


def test_the_file_says_what_runs_as_documented(tmp_path: Path):
    StateFile(tmp_path).write(STATE.with_service(ServiceState("kafka", 7, "b/3", "ready")))
    assert json.loads((tmp_path / "stack.json").read_text()) == {
        "version": 1,
        "stack_id": "abc",
        "phase": "running",
        "host": "127.0.0.1",
        "base_port": 19300,
        "owner": {"pid": 1, "birth": "b/2"},
        "detached": True,
        "services": [{"name": "kafka", "pid": 7, "birth": "b/3", "state": "ready", "restarts": 0}],
        "kafka": "",
    }


def test_what_was_written_is_read_back_and_forgotten_when_removed(tmp_path: Path):
    file = StateFile(tmp_path)
    assert file.read() is None
    state = STATE.with_service(ServiceState("kafka", 7, "b/3", "starting"))
    file.write(state)
    assert file.read() == state
    file.remove()
    assert file.read() is None


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path):
    file = StateFile(tmp_path)
    file.write(STATE)
    (tmp_path / f"stack.{os.getpid()}").mkdir()  # blocks the new file
    with pytest.raises(OSError, match="Is a directory"):
        file.write(replace(STATE, phase="stopping"))
    assert file.read() == STATE


def test_a_file_of_before_there_was_a_kafka_in_it_is_read(tmp_path: Path):
    file = StateFile(tmp_path)
    file.write(STATE)
    fields = json.loads((tmp_path / "stack.json").read_text())
    del fields["kafka"]
    (tmp_path / "stack.json").write_text(json.dumps(fields))
    assert file.read() == STATE


def test_a_service_recorded_again_replaces_itself_in_place():
    state = STATE
    for service in started("kafka", "store"):
        state = state.with_service(service)
    state = state.with_service(ServiceState("kafka", 2, 0.0, "starting"))
    assert [(s.name, s.state) for s in state.services] == [
        ("kafka", "starting"),
        ("store", "ready"),
    ]


def test_a_service_of_a_stack_that_stops_or_is_another_is_not_recorded(tmp_path: Path):
    file, service = StateFile(tmp_path), ServiceState("kafka", 7, "b/3", "ready", 1)
    assert file.record("abc", service) is None
    file.write(STATE)
    assert file.record("another", service) is None
    assert file.record("abc", service) == STATE.with_service(service)
    file.write(replace(STATE, phase="stopping"))
    assert file.record("abc", service) is None
    assert file.read() == replace(STATE, phase="stopping")


def test_only_one_holds_the_lock_and_the_other_is_told_that_it_waits(tmp_path: Path):
    waited = []
    with (
        StateFile(tmp_path).locked(0, lambda: None),
        pytest.raises(LockTimeoutError, match=r"stack\.lock is held by another tidegauge"),
        StateFile(tmp_path).locked(0, lambda: waited.append("once")),
    ):
        pytest.fail("both hold the lock")
    assert waited == ["once"]
    with StateFile(tmp_path).locked(0, lambda: None):
        pass


def test_services_stop_before_the_broker_they_use():
    parts = {p.name: p for p in (part("kafka"), part("store", "kafka"), part("a", "store"))}
    batches = stop_order(started("kafka", "store", "a", "gone"), parts)
    assert [[s.name for s in batch] for batch in batches] == [["a", "gone"], ["store"], ["kafka"]]


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))))
def test_everything_is_stopped_once_whatever_depends_on_whatever(after: dict[str, set[str]]):
    parts = {name: part(name, *sorted(needs - {name})) for name, needs in after.items()}
    stopped = [s.name for batch in stop_order(started(*parts), parts) for s in batch]
    assert sorted(stopped) == sorted(parts)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (3, "store exited with code 3"),
        (-9, "store was terminated by SIGKILL"),
        (None, "store ended"),
    ],
)
def test_a_crash_is_told_by_name_ending_and_last_lines(
    tmp_path: Path, code: int | None, ending: str
):
    log = tmp_path / "store.log"
    log.write_text("first\n\nlast\n")
    error = crashed("store", code, log)
    assert str(error) == f"{ending}; its log is {log}"
    assert error.log_tail == ("first", "last")


@pytest.mark.parametrize(
    ("restarts", "sentence"),
    [(0, "store ended"), (1, "store ended after 1 restart"), (5, "store ended after 5 restarts")],
)
def test_a_part_that_died_too_often_is_told_with_how_often(
    tmp_path: Path, restarts: int, sentence: str
):
    log = tmp_path / "store.log"
    assert str(worn_out("store", "ended", restarts, log)) == f"{sentence}; its log is {log}"


def test_the_tail_is_the_last_lines_and_empty_without_a_log(tmp_path: Path):
    log = tmp_path / "x.log"
    assert tail(log) == ()
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    assert tail(log, 2) == ("line 48", "line 49")


def test_a_log_over_its_bound_begins_anew_and_the_writer_goes_on(tmp_path: Path):
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"0123456789")
        logs.bound_log(log, 10)
        assert log.read_bytes() == b"0123456789"
        logs.bound_log(log, 9)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert (tmp_path / "x.log.1").read_bytes() == b"0123456789"


def test_a_full_disk_is_one_sentence(tmp_path: Path):
    with pytest.raises(StackError, match=r"^the disk is full: \d+ MB are free in .*needed$"):
        check_room(tmp_path, needed_bytes=2**62)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("input_partition = 3", "'input_partition'; did you mean input_partitions?"),
        ("[colour]\nhue = 3", "'colour', see docs/settings.md"),
        ("kafka_heap_mb = 512\nmax_restarts = 3\n[[webhooks]]", ""),
        ("generator_acks = 'all'", ""),
    ],
)
def test_a_file_of_settings_has_only_keys_that_a_service_reads(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    monkeypatch.setenv("TIDEGAUGE_CONFIG", str(file))
    if not said:
        check_config()
        return
    with pytest.raises(StackError) as refused:
        check_config()
    assert str(refused.value) == f"TIDEGAUGE_CONFIG: there is no setting {said}"


def test_a_service_gets_the_settings_whole_whatever_the_environment_said(tmp_path: Path):
    settings = ServiceSettings(
        data=tmp_path, base_port=19300, kafka_properties={"a": "b"}, instance="console"
    )
    environ = {"TIDEGAUGE_BASE_PORT": "1", "TIDEGAUGE_INSTANCE": "x", "HOME": "/home/x"}
    merged = settings_environment(settings, environ)
    assert merged["TIDEGAUGE_BASE_PORT"] == "19300"
    assert merged["TIDEGAUGE_DATA"] == str(tmp_path)
    assert merged["TIDEGAUGE_KAFKA_PROPERTIES"] == '{"a": "b"}'
    assert merged["HOME"] == "/home/x"
    assert "TIDEGAUGE_INSTANCE" not in merged


def test_the_broker_listens_where_the_settings_say_and_makes_no_topics_by_itself(tmp_path: Path):
    lines = server_properties(ServiceSettings(data=tmp_path, base_port=19300)).splitlines()
    open_and_internal = "OPEN://127.0.0.1:19300,INTERNAL://127.0.0.1:19309"
    assert f"listeners={open_and_internal},CONTROLLER://127.0.0.1:19301" in lines
    assert f"advertised.listeners={open_and_internal}" in lines
    assert "auto.create.topics.enable=false" in lines
    assert "group.initial.rebalance.delay.ms=0" in lines
    assert f"log.dirs={tmp_path}/kafka/records" in lines


def test_every_part_has_its_own_ports_and_starts_after_parts_that_exist():
    parts = lasting_parts(ServiceSettings())
    ports = [port for part in parts for port in part.ports]
    of_runs = ["system_frames", "result_frames"]  # open only while a system behind sockets runs
    assert sorted([*ports, *of_runs]) == sorted(PORT_OFFSETS)
    names = {part.name for part in parts}
    assert all(names.issuperset(part.after) for part in parts)


@pytest.mark.parametrize(("parts", "is_quick"), [(stack_parts, True), (lasting_parts, False)])
def test_the_broker_of_a_stack_that_is_left_on_has_the_optimising_compiler(parts, is_quick: bool):
    settings = ServiceSettings()
    (kafka,) = (part for part in parts(settings) if part.name == "kafka")
    command = kafka.command(settings, Java(Path("/jdk"), 17))
    assert (ONLY_QUICK in command) is is_quick


def test_with_a_broker_of_ones_own_no_broker_is_started():
    parts = stack_parts(ServiceSettings(kafka_bootstrap="kafka.example:9092"))
    assert "kafka" not in {part.name for part in parts}
    assert all(part.after == () for part in parts)


@pytest.mark.parametrize(
    ("variable", "parts"),
    [
        ("TIDEGAUGE_SPARK_CONF", {"runner"}),
        ("TIDEGAUGE_SPARK_KAFKA_PROPERTIES", {"runner"}),
        ("TIDEGAUGE_CLICKHOUSE_PASSWORD", {"store"}),
        ("TIDEGAUGE_CLICKHOUSE_PASSWORD_FILE", {"store"}),
        ("TIDEGAUGE_KAFKA_PROPERTIES", set(SERVICES)),
        ("TIDEGAUGE_WEBHOOKS", {"conductor"}),
        ("AWS_SECRET_ACCESS_KEY", {"runner"}),
        ("GRAFANA_TOKEN", {"runner"}),
        ("HOME", {"kafka", *SERVICES}),
        ("TIDEGAUGE_STACK_ID", {"kafka", *SERVICES}),
    ],
)
def test_a_secret_is_told_to_the_parts_that_need_it(variable: str, parts: set[str]):
    assert {part for part in ("kafka", *SERVICES) if may_know(part, variable)} == parts


@pytest.mark.parametrize(
    ("environ", "locale"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": "C"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LANG": "C", "LC_CTYPE": "en_US.utf8"}, None),
        ({"LC_ALL": "de_DE.UTF-8", "LANG": "C"}, "de_DE.UTF-8"),
    ],
)
def test_java_opens_files_by_names_in_utf_8(environ: dict[str, str], locale: str | None):
    assert Java(Path("/jdk"), 17).environment(environ).get("LC_ALL") == locale


def test_the_brokers_folder_may_have_any_letters(tmp_path: Path):
    settings = ServiceSettings(data=tmp_path / "tide\\gauge" / "dätä x")
    lines = server_properties(settings).splitlines()
    assert f"log.dirs={tmp_path}/tide\\\\gauge/d\\u00e4t\\u00e4 x/kafka/records" in lines
