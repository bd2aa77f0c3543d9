"""A watch of a cluster in which it may only read two topics and describe a group."""

import json
import time
from collections import Counter

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from services.definitions.watches import keep_watch
from services.runtime.kafka import LAG
from services.runtime.settings import ServiceSettings
from services.watcher.group_lag import CATCH_UP_S, LAG_S, NEXT_RECORD, OFFSET
from tests.integration.kafka_broker import PROPERTIES, Broker, free_base_port
from tests.integration.service_process import running_service
from tests.integration.watched_bus import (
    a_watch,
    await_conclusion,
    await_that,
    concluded,
    troubles,
)
from tests.integration.watched_pipeline import (
    Load,
    Pipeline,
    as_json,
    brute_force,
    client,
    cluster_state,
    everything,
    faulty,
    identified,
    make_topics,
    told_by,
)

pytestmark = pytest.mark.integration

USERS = ("owner", "reader")
PASSWORD = "only for this test"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    + "".join(f' user_{user}="{PASSWORD}"' for user in USERS)
    + f' username="owner" password="{PASSWORD}";'
)
# The controller's listener has no users.
GUARDED = (
    PROPERTIES.replace("PLAINTEXT://", "SASL_PLAINTEXT://").replace(
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    )
    + f"""
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={LOGIN}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:owner;User:ANONYMOUS
"""
)
RELATION = {"deadline_ms": 1_000, "give_up_ms": 2_000, "remember_ms": 4_000}
ORDERS = 1_500
TOPICS = ("r_orders", "r_shipped")
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
RULES = (
    *((ResourceType.TOPIC, topic, operation) for topic in TOPICS for operation in (READ, DESCRIBE)),
    (ResourceType.GROUP, "shop", DESCRIBE),
)


def login(user):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


@pytest.fixture
def guarded(tmp_path):
    """Settings of a broker with access control, with the owner's login."""
    port = free_base_port()
    folder = tmp_path / "guarded"
    folder.mkdir()
    settings = ServiceSettings(
        base_port=port,
        kafka_bootstrap=f"127.0.0.1:{port}",
        data=folder,
        kafka_properties=login("owner"),
    )
    broker = Broker(settings, GUARDED)
    try:
        broker.await_answer()
        yield settings
    finally:
        broker.close()


def rules_of(admin):
    """Every ACL of a cluster, as text."""
    every = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None)
    asked = AclBindingFilter(*every, AclOperation.ANY, AclPermissionType.ANY)
    return sorted(map(str, admin.describe_acls(asked).result(10)))


def allow_to_read(admin):
    """Grant the reader what a watch needs, and nothing else."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rules = [AclBinding(k, n, literal, "User:reader", "*", op, allow) for k, n, op in RULES]
    for future in admin.create_acls(rules).values():
        future.result(10)


def refusal_to_write(kafka):
    """Why a client may not write to the input."""
    refused = []
    producer = Producer(client(kafka))
    producer.produce("r_orders", b"x", on_delivery=lambda error, _: refused.append(error.code()))
    producer.flush(10)
    return refused


def test_with_rights_to_read_a_watch_leaves_the_cluster_as_it_was(broker, guarded, tmp_path):
    owner = {"bootstrap.servers": guarded.bootstrap, **login("owner")}
    reader = {"bootstrap.servers": guarded.bootstrap, **login("reader")}
    admin = AdminClient(client(owner))
    make_topics(owner, r_orders=2, r_shipped=2)
    allow_to_read(admin)
    assert refusal_to_write(reader) == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    watch = a_watch(
        guarded,
        "guarded",
        kafka={"bootstrap": guarded.bootstrap, "properties": login("reader")},
        inputs=[{"topic": "r_orders", "format": "json", "identity": ["value.id"]}],
        outputs=[{"topic": "r_shipped"}],
        relation=RELATION,
        groups=["shop"],
    )

    def shipped(message):
        number = json.loads(message.value())["id"]
        return faulty(number, ("r_shipped", str(number).encode(), b"done", None))

    load = Load(
        owner, lambda n: [("r_orders", None, as_json(id=n), None)], count=ORDERS, per_second=1_500
    )
    pipeline = Pipeline(owner, ["r_orders"], shipped)
    pipeline.start()
    load.start()
    load.join()
    wanted = sum(len(list(faulty(number, None))) for number in range(ORDERS))
    end_s = time.monotonic() + 90
    while len(everything(owner, "r_shipped")) < wanted:
        assert time.monotonic() < end_s, len(everything(owner, "r_shipped"))
    pipeline.end()
    before = (cluster_state(owner, TOPICS), rules_of(admin))
    inputs = identified(owner, TOPICS[:1], lambda m: str(json.loads(m.value())["id"]))
    outputs = identified(owner, TOPICS[1:], lambda m: m.key().decode())
    keep_watch(tmp_path / "data", watch)
    with running_service(broker, "watcher", tmp_path / "data"):
        last_ms = max(ms for _, ms in (*inputs, *outputs))
        await_conclusion(broker, watch, last_ms)
        source = f"watch-{watch.name}"
        records = await_that(  # the lag of groups is read in a thread of its own
            broker,
            lambda records: any(
                name == "results_metrics" and record["source"] == source for name, record in records
            ),
        )
    assert told_by(records, watch) == brute_force(watch, inputs, outputs)
    assert sum(map(Counter.total, told_by(records, watch)[0].values())) > 0.9 * ORDERS
    assert all(one["valid"] for one in concluded(records, watch).values())
    # Other tests publish on this bus, too.
    assert [one for one in troubles(records) if one["watch"] == watch.name] == []
    metrics = [record for name, record in records if name == "results_metrics"]
    lags = [record for record in metrics if record["source"] == source]
    in_time = {OFFSET, NEXT_RECORD, LAG_S, CATCH_UP_S}
    names = {name for one in lags for name in one["names"]}
    assert names - in_time == {LAG}
    assert {OFFSET, LAG_S} <= names
    assert {(m["group"], m["topic"]) for one in lags for m in one["labels"]} == {
        ("shop", "r_orders")
    }
    assert (cluster_state(owner, TOPICS), rules_of(admin)) == before
    assert [len(everything(owner, topic)) for topic in TOPICS] == [len(inputs), len(outputs)]
