"""Access control of the broker: three listeners, three users, a few rules.

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
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from schemas.catalogue import ENGINE_PREFIX, output_topic
from services.runtime.kafka import KAFKA_TIMEOUT_S, SILENT, client_properties
from services.runtime.secret_files import existing_secret, kept_secret
from services.runtime.settings import KAFKA_USER, ServiceSettings

OWNER: Final = "broker"
ANONYMOUS: Final = "User:ANONYMOUS"
SERVICE_GROUPS: Final = "tidegauge-"  # prefix of the services' consumer groups
SCRAM_ITERATIONS: Final = 4096  # Kafka's minimum; the password is random
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


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
