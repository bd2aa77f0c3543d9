"""A real broker for integration tests: one for a session, or one of its own for a module."""

import atexit
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.broker import jvm_options
from deploy.local.java import find_java
from schemas import catalogue
from services.runtime.kafka import admin_client, ensure_topics, open_client_properties
from services.runtime.ports import PORT_OFFSETS
from services.runtime.settings import ROOT, ServiceSettings
from tests.traffic import input_topics

START_DEADLINE_S = 400
# Below the ephemeral ports: the system may assign one of those to a client at any time.
FIRST_PORT, LAST_PORT = 23_000, 32_700
# It starts often and runs briefly: the first compiler only.
BRIEFLY = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
CLASS_PATH = ("-cp", str(ROOT / ".jars" / "broker" / "*"))
HEAP_MB = 384  # of a stack's broker
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{kafka},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{kafka}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=16777216
"""


class BasePorts:
    """Assigns base ports to stacks, each only once, even if several processes run tests."""

    def __init__(self) -> None:
        path = Path(tempfile.gettempdir()) / f"tidegauge-tests-{os.getuid()}.ports"
        self._claims = path.open("a")  # locks are released when the process ends or closes the file
        self._bases = iter(range(FIRST_PORT, LAST_PORT, len(PORT_OFFSETS)))

    def next(self) -> int:
        """The first of as many adjacent free ports as a stack needs, reserved until this process
        ends. Raises RuntimeError if there are none."""
        for base in self._bases:
            with suppress(OSError):
                fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, base)
                for port in range(base, base + len(PORT_OFFSETS)):
                    with socket.socket() as probe:
                        probe.bind(("127.0.0.1", port))
                return base
        raise RuntimeError("no free ports")


free_base_port = BasePorts().next


def _format(properties: Path) -> None:
    """Create the log folder of a broker."""
    told = ["kafka.tools.StorageTool", "format", "-t", "tidegauge-tests", "-c", str(properties)]
    command = ["java", *BRIEFLY, *CLASS_PATH, *told]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def _formatted() -> Path:
    """The log folder of a broker with PROPERTIES before its first start. It does not depend on the
    ports."""
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-tests-log-"))
    atexit.register(shutil.rmtree, folder)
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(kafka=9092, controller=9093, directory=folder))
    _format(properties)
    return folder / "log"


def lasting() -> tuple[str, ...]:
    """Options of the JVM as in a stack that stays up, for benchmarks."""
    return jvm_options(HEAP_MB, find_java(ROOT / ".jars"), is_optimised=True)


class Broker:
    """A broker that can be killed and restarted on the same data."""

    def __init__(
        self,
        settings: ServiceSettings,
        properties: str = PROPERTIES,
        options: tuple[str, ...] = BRIEFLY,
    ) -> None:
        self.settings = settings
        self._options = options
        self._log = (settings.data / "broker.log").open("a")
        self._properties = settings.data / "server.properties"
        text = properties.format(
            kafka=settings.port("kafka"),
            controller=settings.port("kafka_controller"),
            directory=settings.data,
        )
        self._properties.write_text(text)
        if properties == PROPERTIES:
            shutil.copytree(_formatted(), settings.data / "log")
        else:
            _format(self._properties)
        self.start()

    def start(self) -> None:
        """Start it, without waiting until it responds."""
        temporary = self.settings.data / "tmp"
        temporary.mkdir(exist_ok=True)
        options = [*self._options, f"-Djava.io.tmpdir={temporary}", *CLASS_PATH]
        command = ["java", *options, "kafka.Kafka", str(self._properties)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def await_answer(self) -> None:
        """Wait until it responds."""
        _await_broker(self.settings, self._process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Stop it permanently."""
        self.kill()
        self._log.close()


@contextmanager
def breakable_broker(
    directory: Path, input_partitions: int = 1, options: tuple[str, ...] = BRIEFLY
) -> Iterator[Broker]:
    """A running broker with every fixed topic and the inputs of traffic. It has no access
    control."""
    base_port = free_base_port()
    settings = ServiceSettings(
        base_port=base_port,
        kafka_bootstrap=f"127.0.0.1:{base_port}",
        data=directory,
        input_partitions=input_partitions,
    )
    broker = Broker(settings, options=options)
    try:
        broker.await_answer()
        topics = (*catalogue.fixed_topics(), *input_topics(input_partitions))
        ensure_topics(admin_client(settings, "tests"), topics)
        yield broker
    finally:
        broker.close()


@contextmanager
def running_broker(
    directory: Path, input_partitions: int = 1, options: tuple[str, ...] = BRIEFLY
) -> Iterator[ServiceSettings]:
    """Settings of a stack with a running broker, every fixed topic and the inputs of traffic.
    options: of its JVM."""
    with breakable_broker(directory, input_partitions, options) as broker:
        yield broker.settings


def _await_broker(settings: ServiceSettings, broker: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not _answers(settings):
        assert broker.poll() is None, f"the broker ended; see {settings.data}/broker.log"
        assert time.monotonic() < deadline, "the broker did not start"


def _answers(settings: ServiceSettings) -> bool:
    with suppress(OSError, KafkaException):
        socket.create_connection((settings.host, settings.port("kafka")), 1).close()
        AdminClient(open_client_properties(settings, "tests")).list_topics(timeout=1)
        return True
    time.sleep(0.1)  # poll interval
    return False


@pytest.fixture(scope="module", name="broker")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceSettings]:
    """A separate broker for a module whose tests write records that others must not find. A module
    uses it by importing this."""
    with running_broker(tmp_path_factory.mktemp("broker")) as settings:
        yield settings


@pytest.fixture(scope="module", name="broker")
def own_wide_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceSettings]:
    """The same with two partitions per input topic."""
    with running_broker(tmp_path_factory.mktemp("broker"), input_partitions=2) as settings:
        yield settings


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceSettings]:
    """A broker for all tests of this session, with two partitions per input topic."""
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    with running_broker(tmp_path_factory.mktemp("broker"), input_partitions=2) as settings:
        yield settings
