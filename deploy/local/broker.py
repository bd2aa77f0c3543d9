"""The local Kafka broker: configuration, formatting and readiness.

One node is broker and controller (KRaft), on loopback, with one replica of everything, sized for a
laptop. Its data is in `<data>/kafka`. Access rules: deploy/local/broker_access.py.
"""

import base64
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata
from pydantic import Field

from deploy.local.broker_access import access_properties, renew_owner, set_up_access
from deploy.local.data_folder import UMASK
from deploy.local.jars import IVY_FILE, jar_paths
from deploy.local.jars_lock import STAMP
from deploy.local.java import Java, accepts
from deploy.local.variables import BROKER, known_to
from schemas.catalogue import fixed_topics
from services.runtime.files import properties_text
from services.runtime.jvm import ClassArchive, class_archive
from services.runtime.kafka import SILENT, admin_client, ensure_topics, open_client_properties
from services.runtime.limits import limits
from services.runtime.settings import ROOT, ServiceSettings

METRICS_CONFIG = ROOT / "deploy" / "kafka" / "jmx-exporter.yaml"
FORMAT_TIMEOUT_S = 60
PROBE_TIMEOUT_S = 2.0
# Collects beside the broker's threads, so that no record waits for it, but uses more processor time
# before the code is optimised (decision 0712).
CONCURRENT = "-XX:+UseShenandoahGC"
# Kafka's own choice.
G1 = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
# C1 only, for a broker that serves one run. C2 saves a third of the processor time, but only after
# some minutes in which it uses as much itself.
ONLY_QUICK = "-XX:TieredStopAtLevel=1"


class BrokerError(Exception):
    """The broker's data folder cannot be formatted; the text is one sentence."""


class BrokerSettings(ServiceSettings):
    """Settings of the broker. kafka_heap_mb: heap of its JVM."""

    kafka_heap_mb: int = Field(384, ge=256, le=65_536)


def server_properties(settings: ServiceSettings) -> str:
    """The broker's configuration file."""
    controller = f"{settings.host}:{settings.port('kafka_controller')}"
    listeners = f"OPEN://{settings.open_bootstrap},INTERNAL://{settings.bootstrap}"
    cores = limits().whole_cores
    properties: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"{listeners},CONTROLLER://{controller}",
        "advertised.listeners": listeners,
        **access_properties(settings),
        "log.dirs": log_directory(settings),
        "auto.create.topics.enable": "false",
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # The default takes a quarter of the heap; the compacted topics are small.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        # More threads than cores only add context switches.
        "num.network.threads": min(max(1, cores // 2), 8),
        "num.io.threads": min(max(2, cores), 16),
        "background.threads": 2,
    }
    return properties_text(properties)


def log_directory(settings: ServiceSettings) -> Path:
    """The broker's data folder."""
    return settings.data / "kafka" / "records"


def properties_file(settings: ServiceSettings) -> Path:
    """Path of the configuration file."""
    return settings.data / "kafka" / "server.properties"


def broker_command(
    settings: ServiceSettings, java: Java, is_optimised: bool = False
) -> tuple[str, ...]:
    """The broker's command line. is_optimised: for long runs, with C2 and a concurrent
    collector."""
    heap = BrokerSettings(**settings.model_dump()).kafka_heap_mb
    compiler = () if is_optimised else (ONLY_QUICK,)
    collector = (CONCURRENT,) if is_optimised and accepts(java, CONCURRENT) else G1
    archive = _archive(settings, java)
    classes = archive.options() if archive else ()
    options = (
        f"-Xms{heap}m",
        f"-Xmx{heap}m",
        *collector,
        *compiler,
        *classes,
        _metrics_agent(settings),
    )
    return (*_java(settings, java, *options), "kafka.Kafka", str(properties_file(settings)))


def prepare_broker(settings: ServiceSettings, java: Java) -> None:
    """Write the configuration, and format the folder if it is new. Raises BrokerError."""
    properties_file(settings).parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(_temporary(settings), ignore_errors=True)
    _temporary(settings).mkdir()
    renew_owner(settings)
    write_private(properties_file(settings), server_properties(settings))
    archive = _archive(settings, java)
    if archive is not None:
        archive.record(_class_path(settings))
    if (log_directory(settings) / "meta.properties").is_file():
        return
    command = [*_java(settings, java, ONLY_QUICK), "kafka.tools.StorageTool"]
    command += ["format", "--cluster-id", _random_cluster_id(), "--ignore-formatted"]
    done = subprocess.run(
        [*command, "--config", str(properties_file(settings))],
        env=java.environment(known_to(BROKER, os.environ)),
        umask=UMASK,
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no output"]
        raise BrokerError(f"formatting {log_directory(settings)} failed: {lines[-1]}")


def broker_ready(settings: ServiceSettings) -> bool:
    """Whether the broker answers a metadata request as the cluster of this data folder."""
    try:
        socket.create_connection((settings.host, settings.port("kafka")), timeout=1).close()
    except OSError:
        return False
    try:
        # A new client each time, because a failed one backs off before it retries.
        client = AdminClient(open_client_properties(settings, "stack") | SILENT)
        metadata: ClusterMetadata = client.list_topics(timeout=PROBE_TIMEOUT_S)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.cluster_id == _cluster_id(settings)


def set_up_broker(settings: ServiceSettings) -> None:
    """Set up logins of the services and create the fixed topics. Raises KafkaException,
    KafkaUnavailableError."""
    set_up_access(settings)
    topics = fixed_topics(settings.results_days, settings.results_mebibytes)
    ensure_topics(admin_client(settings, "stack"), topics, settings.replication)


def _java(settings: ServiceSettings, java: Java, *options: str) -> tuple[str, ...]:
    log4j = Path(__file__).with_name("log4j2.xml")
    return (
        str(java.executable),
        *options,
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={_temporary(settings)}",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        _class_path(settings),
    )


def _class_path(settings: ServiceSettings) -> str:
    return f"{settings.jars / 'broker'}/*"


def _archive(settings: ServiceSettings, java: Java) -> ClassArchive | None:
    """Archive of its startup classes, without the agent, which the JVM appends to the class
    path."""
    return class_archive(settings.jars, "broker", java.home, of=[settings.jars / STAMP])


def _temporary(settings: ServiceSettings) -> Path:
    """Folder where the JVM unpacks native libraries; a killed broker leaves them there."""
    return settings.data / "kafka" / "tmp"


def _metrics_agent(settings: ServiceSettings) -> str:
    """The option that exports the broker's metrics for Prometheus."""
    (jar,) = (path for path in jar_paths(IVY_FILE) if path.parent.name == "agent")
    address = f"{settings.host}:{settings.port('kafka_metrics')}"
    return f"-javaagent:{settings.jars / jar}={address}:{METRICS_CONFIG}"


def write_private(path: Path, text: str) -> None:
    """Write a file readable by its owner only, replacing an existing one."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _random_cluster_id() -> str:
    """A cluster id in Kafka's format: 16 random bytes in URL-safe base 64, no leading dash."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _random_cluster_id() if text.startswith("-") else text


def _cluster_id(settings: ServiceSettings) -> str:
    for line in (log_directory(settings) / "meta.properties").read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "cluster.id":
            return value
    return ""
