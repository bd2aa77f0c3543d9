"""The local broker: what a client without the secret of the data folder can do."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.local.broker import OWNER
from deploy.local.parts import KAFKA
from deploy.local.stack import Stack
from schemas import catalogue
from schemas.events import Ready
from services.runtime.events import open_events
from services.runtime.kafka import (
    admin_client,
    client_properties,
    ensure_topics,
    open_client_properties,
)
from services.runtime.settings import KAFKA_USER, ServiceSettings
from tests.integration.kafka_access import CLOSED_TOPICS, TIMEOUT_S, login_error, outcome
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import Reader
from tests.traffic import FLOW, input_topics, output_topics

pytestmark = pytest.mark.security

OUTPUT = catalogue.output_topic("anybody", "parse")
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
EVERYBODY_MAY_WRITE = AclBinding(
    ResourceType.TOPIC,
    "*",
    ResourcePatternType.LITERAL,
    "User:ANONYMOUS",
    "*",
    AclOperation.WRITE,
    AclPermissionType.ALLOW,
)
NEW_PASSWORD = UserScramCredentialUpsertion(
    KAFKA_USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"as I like it"
)
CHANGES = {
    "create a topic": lambda admin: admin.create_topics([NewTopic("output.x.parse", 1, 1)]),
    "delete a topic": lambda admin: admin.delete_topics([catalogue.CONTROL]),
    "add partitions": lambda admin: admin.create_partitions([NewPartitions(catalogue.CONTROL, 2)]),
    "delete records": lambda admin: admin.delete_records([TopicPartition(FLOW, 0, 1)]),
    "alter a topic": lambda admin: admin.alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, OUTPUT, {"retention.ms": "1"})]
    ),
    "alter the broker": lambda admin: admin.alter_configs(
        [ConfigResource(ConfigResource.Type.BROKER, "1", {"log.retention.ms": "1"})]
    ),
    "let everybody write": lambda admin: admin.create_acls([EVERYBODY_MAY_WRITE]),
    "give itself a password": lambda admin: admin.alter_user_scram_credentials([NEW_PASSWORD]),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The broker of a stack, configured as by `up`, with an output topic."""
    settings = ServiceSettings(data=tmp_path_factory.mktemp("stack"), base_port=free_base_port())
    stack = Stack(settings, (KAFKA,))
    try:
        stack.up()
        topics = (*input_topics(), *output_topics("anybody"))
        ensure_topics(admin_client(settings, "tests"), topics)
        yield settings
    finally:
        stack.down()


def anonymous(settings: ServiceSettings, **properties: object) -> dict[str, object]:
    """Properties of a client without the secret; it prints nothing."""
    return open_client_properties(settings, "tests") | properties


@pytest.mark.parametrize("topic", CLOSED_TOPICS)
def test_without_the_secret_nobody_commands_a_service_or_forges_a_result(broker, topic):
    assert outcome(anonymous(broker), topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_without_the_secret_nothing_of_the_broker_is_changed(broker, change):
    admin = AdminClient(anonymous(broker))
    for future in change(admin).values():
        with pytest.raises(KafkaException) as refused:
            future.result(TIMEOUT_S)
        assert refused.value.args[0].code() in DENIED


def test_without_the_secret_nobody_joins_a_group_of_the_services(broker):
    group = anonymous(broker, **{"group.id": "tidegauge-evaluator-1"})
    consumer = Consumer(group)
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(FLOW, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_a_pipeline_without_the_secret_reads_inputs_in_a_group_and_writes_outputs(broker):
    open_events(broker, "tests").publish(Ready(run_id="r1"))
    consumer = Consumer(
        anonymous(broker, **{"group.id": "theirs", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([catalogue.LIFECYCLE])
    (found,) = consumer.consume(1, TIMEOUT_S)
    assert found.error() is None
    consumer.commit(found, asynchronous=False)
    consumer.close()
    assert outcome(anonymous(broker, **{"enable.idempotence": True}), OUTPUT) is None


def test_a_pipeline_without_the_secret_writes_outputs_in_transactions(broker):
    producer = Producer(anonymous(broker, **{"transactional.id": "theirs"}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(OUTPUT, b"whole")
    producer.commit_transaction(TIMEOUT_S)


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("SCRAM-SHA-256", KAFKA_USER, "not the secret"),
        ("SCRAM-SHA-256", OWNER, "not the secret"),
        ("PLAIN", OWNER, "not the secret"),
        ("PLAIN", KAFKA_USER, None),
    ],
)
def test_a_wrong_login_is_no_login(broker, mechanism, user, password):
    """The services' user has no password that could be sent in plain text either."""
    properties = client_properties(broker, "tests") | {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or broker.kafka_secret.read_text().strip(),
    }
    assert login_error(properties) == KafkaError._AUTHENTICATION


@pytest.mark.parametrize("port", ["kafka_controller", "kafka_internal"])
def test_the_other_listeners_answer_nobody_without_a_login(broker, port):
    address = f"{broker.host}:{broker.port(port)}"
    with pytest.raises(KafkaException):
        AdminClient(anonymous(broker, **{"bootstrap.servers": address})).list_topics(timeout=2)


def test_with_the_secret_a_service_does_everything(broker):
    for topic in CLOSED_TOPICS:
        assert outcome(client_properties(broker, "tests"), topic) is None
    reader = Reader(broker, catalogue.CONTROL)
    reader.read()
    reader.close()


def test_the_files_that_let_a_process_log_in_are_private(broker):
    private: tuple[Path, ...] = (
        broker.kafka_secret,
        broker.data / "secrets" / "kafka-broker",
        broker.data / "kafka" / "server.properties",
    )
    assert {path.name: path.stat().st_mode & 0o777 for path in private} == dict.fromkeys(
        ("kafka", "kafka-broker", "server.properties"), 0o600
    )
