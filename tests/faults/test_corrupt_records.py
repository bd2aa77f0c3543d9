"""Corrupt records on every topic during a run: each becomes a dead letter, no part dies, and only
those on an output topic count against the pipeline."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from schemas import catalogue, protocol
from schemas.events import Drained, Failed
from services.runtime.kafka import idempotent_producer
from tests.faults.breakable_stack import (
    PIPELINE,
    STAGES,
    BreakableStack,
    breakable_stack,
    eventually,
    every_event_once,
)
from tests.integration.service_process import Reader
from tests.traffic import RELEASED, input_topics, output_topics

pytestmark = pytest.mark.faults

NOISE = bytes.fromhex("9f3c5e00ff17a2d4886b")
OUTPUTS = output_topics(PIPELINE, STAGES)
Places = list[tuple[str, int]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found


def one_of(stack: BreakableStack, topic: str) -> bytes:
    """The newest record of a topic."""
    reader = Reader(stack.settings, topic)
    try:
        eventually(lambda: reader.read() or reader.messages, f"there is a record on {topic}")
        return bytes(reader.messages[-1].value())
    finally:
        reader.close()


def corrupt(stack: BreakableStack, topics: tuple[catalogue.Topic, ...]) -> Places:
    """Publish to each topic noise, a truncated record, a record of another topic and a null value,
    and events of the run with unreadable or incomplete details. Returns their positions."""
    foreign = one_of(stack, catalogue.GENERATOR), one_of(stack, catalogue.CONTROL)
    event = RELEASED.decode(one_of(stack, catalogue.LIFECYCLE))[1]
    empty = [{"event": one, "detail": "{}"} for one in (Drained.name, Failed.name)]
    found: Places = []

    def delivered(error: object, message: Message) -> None:
        assert error is None
        found.append((message.topic(), message.offset()))

    producer, sent = idempotent_producer(stack.settings, "tests"), 0
    for topic in topics:
        cut = RELEASED.header(topic.records[0]) + b"\x02"  # its text of one character is missing
        values = [NOISE, cut, foreign[topic.name == catalogue.GENERATOR], None]
        if topic.name == catalogue.LIFECYCLE:
            for changes in ({"detail": "no JSON"}, *empty):
                values.append(RELEASED.encode("results_lifecycle", event | changes))
        for value in values:
            producer.produce(topic.name, value, on_delivery=delivered)
        sent += len(values)
    assert producer.flush(30) == 0
    assert len(found) == sent
    return found


def is_dead_letter(stack: BreakableStack, place: tuple[str, int]) -> bool:
    """Whether there is a dead letter for the record, with a reason."""
    topic, offset = place
    where = f"topic = '{topic}' AND `offset` = {offset} AND reason != ''"
    return bool(stack.sql(f"SELECT 1 FROM dead_letter WHERE {where} LIMIT 1"))


def assert_kept(stack: BreakableStack, places: Places) -> None:
    for place in places:
        eventually(lambda place=place: is_dead_letter(stack, place), f"{place} is a dead letter")
    assert set(stack.restarts().values()) == {0}


def test_corrupt_records_on_topics_of_services_and_inputs_change_no_figure(
    stack: BreakableStack,
) -> None:
    run = stack.begin_load()
    stack.await_measuring()
    places = corrupt(stack, (*catalogue.fixed_topics(), *input_topics()))
    report = stack.ended_clean(run)
    assert report["pipelines"][PIPELINE]["restarts"] == []
    assert_kept(stack, places)
    every_event_once(stack)
    stack.has_clean_run()


def test_corrupt_outputs_are_unexpected_and_nothing_else_changes(stack: BreakableStack) -> None:
    # An output without a cause is unexpected once its deadline is past.
    run = stack.begin_load(deadline_ms=20_000)
    stack.await_measuring()
    places = corrupt(stack, OUTPUTS)
    code, report, said = stack.ended(run)
    assert (code, report["invalid_reasons"], report["conclusion"]["clean"]) == (1, [], False), said
    for stage in STAGES:
        verdicts = report["pipelines"][PIPELINE]["stages"][stage]["verdicts"]
        failed = {name: verdicts[name] for name in protocol.FAILED_VERDICTS}
        assert failed == dict.fromkeys(protocol.FAILED_VERDICTS, 0) | {"unexpected": 4}, stage
        if stage != "tumbling":  # tumbling has one output per window
            assert verdicts["exact"] == report["input"]["records"]
    assert_kept(stack, places)
    every_event_once(stack)
    stack.has_clean_run()
