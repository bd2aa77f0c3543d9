"""Faust: `python engine.py PLAN`. An agent reads the inputs.

The kinds of stages are computed by engines/python/stages. Faust reads with a consumer group, passes
records to the agent, commits offsets and runs a timer. It has no joins and no event time, so the
state of a stage is in the agent's memory and not in a Table. It is lost with the program.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Iterable
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.topics import Topic
from faust.types import TP
from stages.flow import Flow
from stages.lines import Progress, end_with_parent, say
from stages.plan import Message, Plan
from stages.reading import UNKNOWN, Reading

TICK_S = 0.02


class Existing(Topic):
    """An existing topic: Faust does not create it."""

    async def declare(self) -> None:
        pass


class Program:
    """The Faust app of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.reading = plan, Reading(plan.start_offsets)
        self.progress = Progress(plan, self.reading)
        self.flow = Flow(plan)
        self.app = self._app()
        raw = {"key_serializer": "raw", "value_serializer": "raw"}
        topics = list(plan.start_offsets)
        self.outputs = {
            topic: Existing(self.app, topics=[topic], **raw) for topic in plan.outputs.values()
        }
        self.app.agent(Existing(self.app, topics=topics, **raw), name="stages")(self.work)
        self.app.timer(TICK_S)(self.tick)
        self.is_ready = False

    def _app(self) -> faust.App:
        settings = self.plan.settings
        return faust.App(
            self.plan.group,
            broker=f"kafka://{self.plan.bootstrap.replace(',', ';')}",
            broker_credentials=credentials(self.plan.kafka),
            broker_commit_interval=settings["commit_interval_ms"] / 1000,
            # Static membership: a restarted program replaces the one that was killed.
            consumer_group_instance_id=self.plan.group,
            consumer_auto_offset_reset="earliest",
            producer_linger=settings["linger_ms"] / 1000,
            store="memory://",
            datadir=self.plan.folder,
            topic_partitions=1,
            topic_disable_leader=True,
            stream_wait_empty=False,
            stream_recovery_delay=0.0,
            web_enabled=False,
            worker_redirect_stdouts=False,
        )

    async def work(self, stream: Any) -> None:
        """The agent: one record at a time through all stages."""
        async for event in stream.events():
            message = event.message
            appended_ms = round(message.timestamp * 1000)
            self.reading.read(message.topic, message.partition, message.offset, appended_ms)
            place = (message.partition, message.offset)
            found = self.flow.read(message.topic, message.key, message.value, appended_ms, place)
            await self.write(found)

    async def tick(self) -> None:
        """Time-driven work: windows that are due, and progress."""
        consumer = self.app.consumer
        places = {TP(topic, number) for topic, number, _ in self.plan.partitions}
        if not (self.app.tables.recovery.completed.is_set() and places <= consumer.assignment()):
            return
        for place in places:
            end = consumer.highwater(place)
            self.reading.end(place.topic, place.partition, UNKNOWN if end is None else end)
        if not self.is_ready:
            self.is_ready = True
            say(event="ready", detail={"faust": faust.__version__})
        await self.write(self.flow.tick(self.reading.reached_ms(time.time() * 1000)))
        self.progress.tell()

    async def write(self, messages: Iterable[Message]) -> None:
        """Publish outputs."""
        for topic, key, value in messages:
            data = key.encode() if isinstance(key, str) else key
            await self.outputs[topic].send(key=data, value=value)


def security(kafka: dict[str, str]) -> dict[str, Any]:
    """Converts librdkafka's security properties to aiokafka's. Raises OSError."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"))
        if "ssl.certificate.location" in kafka:
            context.load_cert_chain(
                kafka["ssl.certificate.location"],
                kafka.get("ssl.key.location"),
                kafka.get("ssl.key.password"),
            )
        found["ssl_context"] = context
    if protocol.startswith("SASL"):
        mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", ""))
        found["sasl_mechanism"] = mechanism.upper()
        found["sasl_plain_username"] = kafka["sasl.username"]
        found["sasl_plain_password"] = kafka["sasl.password"]
    return found


def credentials(kafka: dict[str, str]) -> Any:
    """The same as Faust's credentials; None without any."""
    found = security(kafka)
    context = found.get("ssl_context")
    if "sasl_mechanism" in found:
        return faust.SASLCredentials(
            username=found["sasl_plain_username"],
            password=found["sasl_plain_password"],
            mechanism=found["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


async def begin(plan: Plan) -> None:
    """Commit the start offsets unless the group has committed some already."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        enable_auto_commit=False,
        **security(plan.kafka),
    )
    places = {TopicPartition(topic, number): offset for topic, number, offset in plan.partitions}
    consumer.assign(list(places))
    await consumer.start()
    try:
        known = {at: await consumer.committed(at) for at in places}
        new = {at: offset for at, offset in places.items() if known[at] is None}
        if new:
            await consumer.commit(new)
    finally:
        await consumer.stop()


def main() -> None:
    plan = Plan(sys.argv[-1])
    end_with_parent()
    asyncio.run(begin(plan))
    faust.Worker(Program(plan).app, loglevel="warn").execute_from_commandline()


if __name__ == "__main__":
    main()
