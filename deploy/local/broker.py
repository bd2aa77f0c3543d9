"""The local Kafka broker: configuration, formatting and readiness.

One node is broker and controller (KRaft), on loopback, with one replica of everything, sized for a
laptop. Its data is in `<data>/kafka`.

There are three listeners, three users, and a few rules.

| listener | who logs in | how |
|---|---|---|
| OPEN | nobody: everybody is User:ANONYMOUS | |
| INTERNAL | the services, with the secret `<data>/secrets/kafka` | SCRAM-SHA-256 |
| INTERNAL, CONTROLLER | the broker itself, and the process that sets it up | PLAIN |

The services may do everything. ANONYMOUS may read every topic, with its own consumer group, write
output topics, and create topics for an engine's own use (`engine.…`). So a pipeline needs no
secret, and clients without one can neither command a service, nor forge results, nor add input.

The local broker's own password is new at every start. So it is worthless to a process that takes
over the port of a stopped broker and receives the password from an unsuspecting client.

The brokers of deploy/compose and deploy/kubernetes have the same listeners, users and rules, set up
by `python -m deploy.kafka`.

Each part has environment variables of its own: secrets are passed only where they are needed.
"""

import base64
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pydantic import Field

from deploy.local.jars import STAMP, jars_lock
from deploy.local.java import Java, accepts
from deploy.local.state import UMASK
from schemas.catalogue import ENGINE_PREFIX, fixed_topics, output_topic
from schemas.model import looks_secret
from services.definitions.engines import load_engines
from services.runtime.files import properties_text
from services.runtime.jvm import ClassArchive, class_archive
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    SILENT,
    admin_client,
    client_properties,
    ensure_topics,
    open_client_properties,
)
from services.runtime.limits import limits
from services.runtime.secret_files import existing_secret, kept_secret
from services.runtime.settings import KAFKA_USER, ROOT, ServiceSettings

OWNER: Final = "broker"
ANONYMOUS: Final = "User:ANONYMOUS"
SERVICE_GROUPS: Final = "tidegauge-"  # prefix of the services' consumer groups
SCRAM_ITERATIONS: Final = 4096  # Kafka's minimum; the password is random
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER = "kafka"
ARCHIVE_USE: Final = "broker"  # the use of its class archive
SECRET_SETTINGS = {
    "TIDEGAUGE_CLICKHOUSE_PASSWORD": "store",
    "TIDEGAUGE_CLICKHOUSE_PASSWORD_FILE": "store",
    "TIDEGAUGE_WEBHOOKS": "conductor",
}
# Credentials of Kafka clients.
EVERY_SERVICE = "TIDEGAUGE_KAFKA_PROPERTIES"
# Gets the secrets of engines, and the user's own, such as AWS_SECRET_ACCESS_KEY for storage that
# an engine writes to.
OTHERS = "runner"
# Python's own allocator returns memory in blocks of 1 MB. A small object that outlives a run keeps
# a whole block, so the conductor grew with each long run. malloc returns pages of 4 KB.
ALLOCATORS = {"conductor": {"PYTHONMALLOC": "malloc"}}
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


def access_properties(settings: ServiceSettings) -> dict[str, object]:
    """The broker's listener and login properties. They contain the owner's password."""
    password = kept_secret(_owner_secret(settings))
    login = f'{_PLAIN} required username="{OWNER}" password="{password}" user_{OWNER}="{password}";'
    return {
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": (
            "CONTROLLER:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,OPEN:PLAINTEXT"
        ),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": login,
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.internal.plain.sasl.jaas.config": login,
        "listener.name.internal.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{OWNER};User:{KAFKA_USER}",
    }


def renew_owner(settings: ServiceSettings) -> None:
    """Generate a new password for the broker, and create that of the services if missing. Raises
    OSError, SecretFileError."""
    _owner_secret(settings).unlink(missing_ok=True)
    kept_secret(settings.kafka_secret)


def set_up_access(settings: ServiceSettings) -> None:
    """Set the login of the services and the rules for anonymous clients, which the broker stores.
    Idempotent. Raises KafkaException, SecretFileError."""
    login = {
        "sasl.mechanism": "PLAIN",
        "sasl.username": OWNER,
        "sasl.password": existing_secret(_owner_secret(settings)),
    }
    admin = AdminClient(client_properties(settings, "stack") | SILENT | login)
    services = UserScramCredentialUpsertion(
        KAFKA_USER,
        ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, SCRAM_ITERATIONS),
        existing_secret(settings.kafka_secret).encode(),
    )
    users = admin.alter_user_scram_credentials([services], request_timeout=KAFKA_TIMEOUT_S)
    rules = admin.create_acls(list(anonymous_rules()), request_timeout=KAFKA_TIMEOUT_S)
    for future in (*users.values(), *rules.values()):
        future.result(KAFKA_TIMEOUT_S)


def anonymous_rules() -> Iterator[AclBinding]:
    """What a client without a login may do, and may not do."""
    everything, outputs = "*", output_topic("", "").removesuffix(".")
    for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        yield _rule(ResourceType.TOPIC, everything, operation)
    yield _rule(ResourceType.TOPIC, outputs, AclOperation.WRITE, is_prefix=True)
    for operation in (AclOperation.CREATE, AclOperation.WRITE, AclOperation.DELETE):
        yield _rule(ResourceType.TOPIC, ENGINE_PREFIX, operation, is_prefix=True)
    for kind in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        yield _rule(kind, everything, AclOperation.DESCRIBE)
    yield _rule(ResourceType.GROUP, everything, AclOperation.READ)
    yield _rule(ResourceType.TRANSACTIONAL_ID, everything, AclOperation.WRITE)
    yield _rule(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    yield _rule(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    yield _rule(
        ResourceType.GROUP, SERVICE_GROUPS, AclOperation.READ, is_prefix=True, is_allowed=False
    )


def _rule(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    is_prefix: bool = False,
    is_allowed: bool = True,
) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    permission = AclPermissionType.ALLOW if is_allowed else AclPermissionType.DENY
    return AclBinding(kind, name, pattern, ANONYMOUS, "*", operation, permission)


def _owner_secret(settings: ServiceSettings) -> Path:
    return settings.secrets_dir / "kafka-broker"


def known_to(part: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part."""
    known = {name: value for name, value in environ.items() if may_know(part, name)}
    return known | ALLOCATORS.get(part, {})


def may_know(part: str, variable: str) -> bool:
    """Whether a part gets a variable."""
    if variable == EVERY_SERVICE:
        return part != BROKER
    if variable in SECRET_SETTINGS:
        return part == SECRET_SETTINGS[variable]
    return part == OTHERS or not (variable in _of_engines() or looks_secret(variable, ""))


@cache
def _of_engines() -> frozenset[str]:
    """Variables with secret settings of engines."""
    return frozenset(name for engine in load_engines().values() for name in engine.spec.secrets)


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
    """The broker's command line. is_optimised: as in `jvm_options`."""
    heap_mb = BrokerSettings(**settings.model_dump()).kafka_heap_mb
    archive = _archive(settings, java)
    classes = archive.options() if archive else ()
    jvm = jvm_options(heap_mb, java, is_optimised=is_optimised)
    options = (*jvm, *classes, _metrics_agent(settings))
    return (*_java(settings, java, *options), "kafka.Kafka", str(properties_file(settings)))


def jvm_options(heap_mb: int, java: Java, *, is_optimised: bool) -> tuple[str, ...]:
    """Heap, collector and compiler of a broker's JVM. is_optimised: for long runs, with C2 and a
    concurrent collector."""
    compiler = () if is_optimised else (ONLY_QUICK,)
    collector = (CONCURRENT,) if is_optimised and accepts(java, CONCURRENT) else G1
    return (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *collector, *compiler)


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
    return class_archive(settings.jars, ARCHIVE_USE, java.home, of=[settings.jars / STAMP])


def _temporary(settings: ServiceSettings) -> Path:
    """Folder where the JVM unpacks native libraries; a killed broker leaves them there."""
    return settings.data / "kafka" / "tmp"


def _metrics_agent(settings: ServiceSettings) -> str:
    """The option that exports the broker's metrics for Prometheus."""
    (jar,) = (path for path in jars_lock() if path.parent.name == "agent")
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
