"""Failures of a watched cluster, one after another on one broker: each is reported, and the watch
continues with the counts of a brute force."""

import json
from collections import Counter

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from services.definitions.watches import keep_watch
from tests.integration.kafka_broker import breakable_broker, own_broker  # noqa: F401
from tests.integration.registry_double import Registry, serving
from tests.integration.service_process import running_service
from tests.integration.watched_bus import (
    a_watch,
    await_conclusion,
    await_that,
    concluded,
    read_of,
    troubles,
)
from tests.integration.watched_pipeline import (
    Load,
    Pipeline,
    as_json,
    brute_force,
    client,
    everything,
    faulty,
    identified,
    make_topics,
    told_by,
)
from tests.unit.watcher.records import datum

pytestmark = pytest.mark.faults

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
KNOWN, UNKNOWN = b"\0\0\0\0\x07", b"\0\0\0\0\x63"
PER_SECOND = 500


def order(number):
    """An order; for some numbers also one with an unknown schema, or an undecodable one."""
    value = datum(ORDER, {"id": number})
    yield "t_in", b"%d" % number, KNOWN + value, None
    if number % 100 == 50:
        yield "t_in", b"x", UNKNOWN + value, None
    if number % 100 == 60:
        yield "t_in", b"x", KNOWN + b"\xff" * 30, None


def number_of(message):
    if message.value()[:5] != KNOWN or len(message.value()) > 20:
        raise ValueError
    return int(message.key())


def shipped(message):
    try:
        number = number_of(message)
    except ValueError:
        return []
    return faulty(number, ("t_out", b"k", as_json(order=str(number)), None))


def output_number(message):
    return int(json.loads(message.value())["order"])


class Shop:
    """Sends orders in number order, and publishes their outputs."""

    def __init__(self, bootstrap, first=0):
        self.bootstrap = bootstrap
        self._next = first
        self._pipeline = Pipeline(bootstrap, ["t_in"], shipped)
        self._pipeline.start()

    def begin(self, count):
        """Start sending `count` orders; returns the sender."""
        load = Load(self.bootstrap, order, count, PER_SECOND, first=self._next)
        self._next += count
        load.start()
        return load

    def send(self, count):
        """Send `count` orders and wait until they are sent."""
        self.begin(count).join()

    def close(self):
        """Publish the outputs of the sent orders, then stop."""
        self._pipeline.end()

    def inputs(self):
        """Identity and time of every order on the topic."""
        return identified(self.bootstrap, ["t_in"], number_of)

    def outputs(self):
        """Identity and time of every output on the topic."""
        return identified(self.bootstrap, ["t_out"], output_number)


def has(kind, count=1):
    return lambda records: len(troubles(records, kind)) >= count


def delete_orders(bootstrap):
    """Delete every record of the input, as retention does."""
    admin = AdminClient(client(bootstrap))
    partitions = admin.list_topics("t_in", 10).topics["t_in"].partitions
    ends = {m.partition(): m.offset() + 1 for m in everything(bootstrap, "t_in")}
    asked = [TopicPartition("t_in", number, ends[number]) for number in partitions]
    for future in admin.delete_records(asked).values():
        future.result(10)


def test_whatever_happens_is_told_and_the_watch_goes_on(broker, tmp_path):
    data = tmp_path / "data"
    (tmp_path / "watched").mkdir()
    with (
        serving(Registry("reader", "secret")) as registry,
        breakable_broker(tmp_path / "watched") as watched,
    ):
        registry.schemas[7] = {"schema": json.dumps(ORDER)}
        bootstrap = watched.settings.bootstrap
        admin = AdminClient(client(bootstrap))
        make_topics(bootstrap, t_in=2, t_out=2)
        login = {"url": registry.url, "user": "reader", "password": "secret"}
        format_ = {"format": "avro-confluent", "identity": ["value.id"]}
        watch = a_watch(
            watched.settings,
            "troubled",
            registry=login,
            inputs=[{"topic": "t_in", **format_}],
            outputs=[{"topic": "t_out", "format": "json", "identity": ["value.order"]}],
        )
        keep_watch(data, watch)
        shop = Shop(bootstrap)

        with running_service(broker, "watcher", data) as service:
            shop.send(1_000)
            records = await_that(broker, has("undecodable", 2))
            reasons = {one["reason"] for one in troubles(records, "undecodable")}
            assert len(reasons) == 2
            assert any(one.startswith("schema 99 was not found") for one in reasons)
            assert any(one.startswith("not a record of its schema") for one in reasons)

            admin.create_partitions([NewPartitions("t_in", 3)])["t_in"].result(10)
            records = await_that(broker, has("partition_added"))
            added = troubles(records, "partition_added")
            assert [(one["topic"], one["partition"]) for one in added] == [("t_in", 2)]
            shop.send(1_000)
            assert {m.partition() for m in everything(bootstrap, "t_in")} == {0, 1, 2}
            known = len(everything(bootstrap, "t_in"))
            await_that(broker, lambda records: read_of(records, watch, "t_in") == known)
            service.terminate()
            service.wait(20)

        inputs = shop.inputs()
        shop.send(500)
        deleted = everything(bootstrap, "t_in")
        unseen = len(deleted) - known
        delete_orders(bootstrap)

        with running_service(broker, "watcher", data):
            records = await_that(broker, has("retention_overtook", 3))
            overtook = troubles(records, "retention_overtook")
            assert {one["partition"] for one in overtook} == {0, 1, 2}
            assert sum(one["records"] for one in overtook) == unseen

            load = shop.begin(1_500)
            kept = len(inputs) + 300
            await_that(broker, lambda records: read_of(records, watch, "t_in") >= kept)
            watched.kill()
            watched.start()
            watched.await_answer()
            load.join()
            shop.close()

            outputs = shop.outputs()
            await_that(broker, lambda records: read_of(records, watch, "t_out") == len(outputs))
            admin.delete_topics(["t_out"])["t_out"].result(10)
            await_that(broker, has("topic_deleted"))
            make_topics(bootstrap, t_out=1)
            records = await_that(broker, has("topic_appeared"))
            again = Shop(bootstrap, first=5_000)
            again.send(500)
            again.close()

            # A broker that is killed soon after a deletion shows the deleted records again.
            deleted_ms = max(m.timestamp()[1] for m in deleted)
            inputs += [(identity, ms) for identity, ms in shop.inputs() if ms > deleted_ms]
            outputs += shop.outputs()
            last_ms = max(ms for _, ms in (*inputs, *outputs))
            records = await_conclusion(broker, watch, last_ms)

    told = told_by(records, watch)
    assert told == brute_force(watch, inputs, outputs)
    assert sum(map(Counter.total, told[0].values())) > 2_500
    reasons = [one for run in concluded(records, watch).values() for one in run["invalid_reasons"]]
    assert any("were deleted before they were read" in one for one in reasons)
    assert "The topic t_out was deleted." in reasons
    assert troubles(records, "not_repeatable") == []
