"""A process that takes over a run: the run, and the counts still to be published."""

import json
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue
from schemas.commands import Drain, Malformed, Measure, Prepare, RequestRun, Start, Stop
from services.evaluator.run.publishing import Publication, Published
from services.evaluator.run.reader import DeletedError, Frontier, check_kept
from services.evaluator.run.session import EvaluatorSession, RunTopics
from services.evaluator.settings import EvaluatorSettings
from services.runtime.counting import CountReconciler, NotRepeatableError
from services.runtime.events import Events, unfinished
from services.runtime.kafka import KafkaUnavailableError, NoTopicError
from tests.traffic import TRAFFIC
from tests.unit.evaluator.records import PHASES, START_MS, a_plan
from tests.unit.kafka_clients import Client, Kept, Message

pytestmark = pytest.mark.unit

NOW_MS = START_MS + 5_000


def command(name, run_id="run", issued_at=START_MS - 5_000):
    head = {"run_id": run_id, "issued_at": issued_at}
    match name:
        case "prepare":
            return Prepare(plan=a_plan(), **head)
        case "drain":
            return Drain(end_offsets={}, **head)
        case "stop":
            return Stop(**head)
        case "run":
            return RequestRun(request=a_plan().request, **head)
    return (Start if name == "start" else Measure)(phases=PHASES, **head)


def names(commands):
    return [one.name for one in unfinished(commands, NOW_MS)]


RUN = [command("run"), command("prepare"), command("start"), command("drain")]


@pytest.mark.parametrize("known", range(5))
def test_the_commands_of_a_run_that_is_not_stopped_are_taken_up_as_far_as_they_go(known):
    assert names(RUN[:known]) == ["prepare", "start", "drain"][: max(0, known - 1)]


def test_a_warm_up_that_ended_earlier_is_taken_up_so():
    shorter = command("measure")
    assert names([*RUN[:3], shorter]) == ["prepare", "start", "measure"]


def test_a_run_that_was_stopped_is_over():
    assert names([*RUN, command("stop")]) == []


def test_the_stop_of_another_run_does_not_end_it():
    assert names([*RUN, command("stop", "other")]) == ["prepare", "start", "drain"]


def test_the_newest_run_counts():
    assert names([*RUN, command("prepare", "next")]) == ["prepare"]


def test_a_run_that_should_have_ended_long_ago_is_abandoned():
    assert unfinished(RUN[:3], START_MS + 620_000) == []
    assert unfinished(RUN[:3], START_MS + 600_000) != []


LATENCY = {
    "pipeline": "p",
    "stage": "parse",
    "definition": "latest",
    "phase": "measure",
    "second": START_MS,
}
VERDICTS = {"pipeline": "p", "stage": "parse", "phase": "measure", "second": START_MS}
NONE = dict.fromkeys(("exact", "wrong", "missing", "late", "duplicate", "unexpected"), 0)


def owing(published):
    """The unpublished counts, given those already published."""
    owed = CountReconciler()
    for topic, fields in published:
        owed.deduct(topic, fields)
    return owed


def test_only_the_rest_is_published():
    owed = owing(
        [
            (catalogue.LATENCY, LATENCY | {"latencies_ms": [1, 2], "counts": [10, 5]}),
            (catalogue.LATENCY, LATENCY | {"latencies_ms": [2], "counts": [1]}),
        ]
    )
    owed.count(catalogue.LATENCY, LATENCY | {"latencies_ms": [1, 2, 3], "counts": [10, 9, 2]})
    rest = LATENCY | {"latencies_ms": [2, 3], "counts": [3, 2]}
    assert list(owed.events()) == [(catalogue.LATENCY, rest)]


def test_what_was_published_whole_is_not_published_again():
    event = (catalogue.VERDICTS, VERDICTS | NONE | {"exact": 3, "samples": ["{}"]})
    owed = owing([event])
    owed.count(*event)
    assert list(owed.events()) == []
    assert list(owed.differences()) == []


def test_samples_that_were_not_published_are_published_with_the_rest():
    owed = owing([(catalogue.VERDICTS, VERDICTS | NONE | {"wrong": 1, "samples": ["one"]})])
    owed.count(catalogue.VERDICTS, VERDICTS | NONE | {"wrong": 2, "samples": ["one", "two"]})
    rest = VERDICTS | NONE | {"wrong": 1, "samples": ["two"]}
    assert list(owed.events()) == [(catalogue.VERDICTS, rest)]


def test_a_verdict_that_time_has_changed_is_taken_back():
    owed = owing([(catalogue.VERDICTS, VERDICTS | NONE | {"missing": 1})])
    owed.count(catalogue.VERDICTS, VERDICTS | NONE | {"late": 1})
    change = VERDICTS | NONE | {"missing": -1, "late": 1, "samples": []}
    assert list(owed.events()) == [(catalogue.VERDICTS, change)]
    assert [str(one) for one in owed.differences()] == [
        f"results.verdicts p parse measure {START_MS}: late +1",
        f"results.verdicts p parse measure {START_MS}: missing -1",
    ]


def test_a_latency_that_is_not_counted_again_is_an_error():
    owed = owing([(catalogue.LATENCY, LATENCY | {"latencies_ms": [1], "counts": [1]})])
    with pytest.raises(NotRepeatableError, match="less than was published"):
        list(owed.events())


# Stage, second, latency and count.
CELL = st.tuples(
    st.sampled_from(["parse", "join"]), st.integers(0, 3), st.integers(0, 2), st.integers(1, 5)
)


def event(stage, second, latency_ms, count):
    where = LATENCY | {"stage": stage, "second": START_MS + 1000 * second}
    return catalogue.LATENCY, where | {"latencies_ms": [latency_ms], "counts": [count]}


def total(events):
    """Counts by stage, second and latency."""
    counts = Counter()
    for _topic, fields in events:
        for latency_ms, count in zip(fields["latencies_ms"], fields["counts"], strict=True):
            counts[fields["stage"], fields["second"], latency_ms] += count
    return counts


@given(st.lists(CELL, max_size=20), st.lists(st.integers(0, 6), max_size=5))
def test_however_often_a_process_dies_the_bus_ends_with_every_count_once(cells, deaths):
    whole, bus = [event(*cell) for cell in cells], []
    for death in [*deaths, None]:  # the last process publishes everything
        owed = owing(bus)
        # A process dies after publishing this many of the remaining events, but never before it has
        # caught up.
        for each in whole:
            owed.count(*each)
        bus += list(owed.events())[:death]
        assert total(bus) <= total(whole)
    assert total(bus) == total(whole)


class Event(dict):
    """An event that supports weak references."""

    __slots__ = ("__weakref__",)


def test_of_what_was_published_only_the_counts_stay_however_many_events_there_were():
    published, seen = Published(), []
    for _ in range(1_000):
        event = Event(LATENCY | {"latencies_ms": [1, 2], "counts": [10, 5]})
        published.add("results_latency", event)
        seen.append(weakref.ref(event))
        del event
    assert not any(event() for event in seen)
    counted = {"latencies_ms": [1, 2], "counts": [10_000, 5_001]}
    published.counts.count(catalogue.LATENCY, LATENCY | counted)
    rest = LATENCY | {"latencies_ms": [2], "counts": [1]}
    assert list(published.counts.events()) == [(catalogue.LATENCY, rest)]


class Record(Message):
    """A record of a topic at an offset."""

    def __init__(self, topic, offset):
        super().__init__(b"\0")
        self._place = topic, offset

    def topic(self):
        return self._place[0]

    def offset(self):
        return self._place[1]


def letters_of(records, already=None):
    """Topic, offset and reason of the letters of some records; 3 of an output topic are kept."""
    producer = Kept()
    where = {"output.p.parse": ("p", "parse")}
    publication = Publication(Events(producer, "evaluator"), "run", where, already, max_letters=3)
    for record in records:
        publication.dead_letter(record, "no Avro")
    return [(one["topic"], one["offset"], one["reason"]) for _, one, _ in producer.sent]


LAST = "no further ones of this topic are kept; no Avro"


def test_the_first_dead_letters_of_an_output_topic_are_kept():
    records = [Record(topic, n) for n in range(5) for topic in ("output.p.parse", "traffic.flow")]
    letters = letters_of(records)
    assert [one[1:] for one in letters if one[0] == "traffic.flow"] == [
        (n, "no Avro") for n in range(5)
    ]
    assert [one[1:] for one in letters if one[0] == "output.p.parse"] == [
        (0, "no Avro"),
        (1, "no Avro"),
        (2, LAST),
    ]


@pytest.mark.parametrize(("before", "rest"), [(0, [0, 1, 2]), (2, [2]), (3, [])])
def test_dead_letters_of_the_process_before_are_among_the_first(before, rest):
    already = Published()
    for n in range(before):
        where = {"topic": "output.p.parse", "partition": 0, "offset": n}
        already.add("dead_letter", where)
    letters = letters_of([Record("output.p.parse", n) for n in range(5)], already)
    assert [offset for _, offset, _ in letters] == rest


@pytest.mark.parametrize(
    ("input_ms", "offset", "events"), [(9_999, 7, 0), (10_000, 6, 0), (10_000, 7, 1)]
)
def test_counts_are_published_once_as_much_and_as_late_is_read_as_before(input_ms, offset, events):
    class Evaluation:
        def take_events(self):
            yield catalogue.VERDICTS, VERDICTS | NONE | {"exact": 3, "samples": []}

    producer, place = Kept(), ("traffic.flow", 0)
    where, bus = {"t": ("p", "parse")}, Events(producer, "evaluator")
    publication = Publication(bus, "run", where, Published(), {place: 7}, ends_ms=10_000)
    publication.publish(Evaluation(), Frontier(input_ms, 12_000, {place: offset}))
    assert len(producer.sent) == events
    assert publication.is_behind is not bool(events)


def test_a_run_whose_first_records_are_gone_is_not_counted_again():
    class Shortened(Client):
        def get_watermark_offsets(self, _partition, timeout):
            return 5, 7

    check_kept(Shortened(), {("traffic.flow", 0): 5, ("traffic.flow", 1): 7})
    for begin in (4, 8):
        with pytest.raises(
            DeletedError, match=r"The first records .* traffic.flow are no longer retained"
        ):
            check_kept(Shortened(), {("traffic.flow", 0): 5, ("traffic.flow", 1): begin})


class FakeTopics(RunTopics):
    """Topics that are in order, with these commands and the offset after them, or an error."""

    def __init__(self, answer):
        super().__init__(EvaluatorSettings())
        self._answer = answer

    def commands(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def check(self, topics):
        pass

    def check_kept(self, offsets):
        pass


def resumed(answer):
    """The result of resuming, given that of reading the commands, and the published events."""
    producer = Kept()
    run = EvaluatorSession(FakeTopics(answer), Events(producer, "evaluator"), lambda: NOW_MS)
    return run.resume(), producer.sent


def test_without_a_topic_of_commands_there_is_no_history():
    assert resumed(NoTopicError("topic control.runs is not there")) == (0, [])


def test_a_bus_that_does_not_answer_is_not_taken_for_one_without_history():
    with pytest.raises(KafkaUnavailableError, match="did not come"):
        resumed(KafkaUnavailableError("the records of control.runs did not come"))


def test_a_drain_that_is_none_fails_the_run_that_is_taken_up():
    offsets = dict.fromkeys(TRAFFIC.topics, (0,))
    plan = a_plan().model_copy(update={"start_offsets": offsets})
    prepare = command("prepare").model_copy(update={"plan": plan})
    wrong = Malformed("drain", "run", "2", "end_offsets: It is missing")
    end, ((_topic, event, _key),) = resumed(([prepare, wrong], 2))
    assert (end, event["event"]) == (2, "failed")
    assert "could not drain" in json.loads(event["detail"])["reason"]
