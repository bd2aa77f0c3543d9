"""A recording of 200,000 states as OpenSky's API gives them, replayed over each transport into
three engines and a system behind sockets: each has every result that a scan of the file expects,
once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.command import CommandLine
from tests.end_to_end.recorded_states import assert_each_once, usable_states, write_recording
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.engines

BASE_PORT = free_base_port()
ENGINES, BEHIND_SOCKETS = ("spark-microbatch", "flink", "kafka-streams"), "socket-python"
TRANSPORTS = ("kafka", "tcp", "udp", "zeromq")
SECONDS, STATES_PER_SECOND, LOAD_S = 100, 2_000, 50


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    write_recording(folder / "states.json", SECONDS, STATES_PER_SECOND)
    assert len(usable_states(folder / "states.json")) == 200_000
    return folder


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path_factory.mktemp("stack"), BASE_PORT)
    with command.stack():
        yield command


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("pipeline", ENGINES)
def test_an_engine_has_each_result_once(
    tidegauge: CommandLine, recording: Path, pipeline: str, transport: str
) -> None:
    assert_each_once(tidegauge, recording, pipeline, transport, LOAD_S)


@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_a_system_behind_sockets_has_each_result_once(
    tidegauge: CommandLine, recording: Path, transport: str
) -> None:
    assert_each_once(tidegauge, recording, BEHIND_SOCKETS, transport, LOAD_S)
