"""A path of topics: each loss, and each duplicate, is put on the hop at which it happened."""

import json
import random
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from schemas import catalogue
from schemas.watch import Watch
from services.watcher.records import DUPLICATE, EXACT, LATE, LOST, UNEXPECTED
from services.watcher.runs import WatchRuns
from services.watcher.watched import Watched
from tests.unit.watcher.one_by_one import verdicts_of
from tests.unit.watcher.records import message

pytestmark = pytest.mark.unit
NAMES = {EXACT: "exact", LATE: "late", LOST: "missing"}
NAMES |= {DUPLICATE: "duplicate", UNEXPECTED: "unexpected"}
HOPS, RECORDS, FAULTS = 5, 6_000, 1_000
TOPICS = [f"t{number}" for number in range(HOPS + 1)]
RELATION = {"deadline_ms": 200, "give_up_ms": 400, "remember_ms": 800}
CHAIN = {
    "name": "path",
    "stage": "whole",
    "begin": "earliest",
    "relation": RELATION,
    "inputs": [{"topic": TOPICS[0]}],
    "through": [{"topic": topic} for topic in TOPICS[1:-1]],
    "outputs": [{"topic": TOPICS[-1]}],
    "hops": [
        {"name": f"hop{number}", "inputs": [before], "outputs": [after]}
        for number, (before, after) in enumerate(pairwise(TOPICS))
    ],
}


def chain(**fields):
    return Watch.model_validate(CHAIN | fields)


def planted(seed):
    """Records of each topic as (identity, time), ordered by time, and the hops of the losses and
    duplicates."""
    chance = random.Random(seed)
    faulty = chance.sample(range(RECORDS), 2 * FAULTS)
    hop_of = {name: chance.randrange(HOPS) for name in faulty}
    lost = {name: hop_of[name] for name in faulty[:FAULTS]}
    doubled = {name: hop_of[name] for name in faulty[FAULTS:]}
    topics = [[(name, 1_000 + 2 * name) for name in range(RECORDS)]]
    for hop in range(HOPS):
        outputs = []
        for name, ms in topics[-1]:
            if lost.get(name) == hop:
                continue
            outputs.append((name, ms + chance.randrange(1, 20)))
            if doubled.get(name) == hop:
                outputs.append((name, ms + chance.randrange(20, 40)))
        topics.append(sorted(outputs, key=lambda record: record[1]))
    return topics, Counter(lost.values()), Counter(doubled.values())


def of_stages(events):
    """Latencies and verdicts by stage."""
    latencies, verdicts = defaultdict(Counter), defaultdict(Counter)
    for event in events:
        fields = event.fields
        if event.topic == catalogue.LATENCY:
            counts = dict(zip(fields["latencies_ms"], fields["counts"], strict=True))
            latencies[fields["stage"]].update(counts)
        elif event.topic == catalogue.VERDICTS:
            for name in NAMES.values():
                verdicts[fields["stage"]][name] += fields[name]
    return {stage: (+latencies[stage], +verdicts[stage]) for stage in verdicts}


def by_brute_force(watch, inputs, outputs):
    """The same of one stage. Identities are judged apart, in parts to be quick."""
    latencies, verdicts = Counter(), Counter()
    for part in range(200):
        mine = ([each for each in side if each[0] % 200 == part] for side in (inputs, outputs))
        for (verdict, input_ms, output_ms), count in verdicts_of(*mine, watch.relation).items():
            verdicts[NAMES[verdict]] += count
            if verdict in (EXACT, LATE):
                latencies[output_ms - input_ms] += count
    return latencies, verdicts


def messages(topic, pairs, first):
    return [
        message(topic, None, str(name).encode(), ms, offset=first + number)
        for number, (name, ms) in enumerate(pairs)
    ]


def test_every_loss_and_duplicate_is_put_on_its_hop_also_after_a_restart():
    watch = chain()
    topics, lost, doubled = planted(1)
    watched, events = Watched(watch, 0), []
    chance = random.Random(2)
    read = [0] * len(topics)
    while any(at < len(records) for at, records in zip(read, topics, strict=True)):
        for number in chance.sample(range(len(topics)), len(topics)):
            first, read[number] = read[number], read[number] + chance.randrange(1, 900)
            some = topics[number][first : read[number]]
            if some:
                watched.take(TOPICS[number], messages(TOPICS[number], some, first))
        unread = [r[at][1] for at, r in zip(read, topics, strict=True) if at < len(r)]
        events += watched.advance(min(unread, default=1_000_000))
        arrays, rest = watched.saved()
        watched = Watched(watch, 0)  # as the next process does
        saved = {name: np.array(column) for name, column in arrays.items()}
        watched.restore(saved, json.loads(json.dumps(rest)))
    events += watched.advance(1_000_000)
    measured = of_stages(events)
    for hop, (inputs, outputs) in enumerate(pairwise(topics)):
        assert measured[f"hop{hop}"] == by_brute_force(watch, inputs, outputs)
        verdicts = measured[f"hop{hop}"][1]
        assert (verdicts["missing"], verdicts["duplicate"]) == (lost[hop], doubled[hop])
    assert measured["whole"] == by_brute_force(watch, topics[0], topics[-1])
    assert measured["whole"][1]["missing"] == lost.total() == FAULTS
    assert measured["whole"][1]["duplicate"] == doubled.total() == FAULTS


def small(watch, *ends):
    """A watch of one record, that was published at these times."""
    watched = Watched(watch, 0)
    for topic, ms in zip(watch.topics(), ends, strict=False):
        watched.take(topic, messages(topic, [(7, ms)], 0))
    return watched, list(watched.advance(10_000))


def test_a_record_stops_at_the_hop_that_misses_it():
    _, events = small(chain(), 1_000, 1_010, 1_030)
    measured = {stage: dict(each[1]) for stage, each in of_stages(events).items()}
    assert measured == {
        "whole": {"missing": 1},
        "hop0": {"exact": 1},
        "hop1": {"exact": 1},
        "hop2": {"missing": 1},
    }
    samples = [
        json.loads(sample)
        for event in events
        if event.topic == catalogue.VERDICTS and event.fields["stage"] == "hop2"
        for sample in event.fields["samples"]
    ]
    assert [(each["topic"], each["offset"]) for each in samples] == [("t2", 0)]


def test_a_topic_between_hops_counts_once_as_the_output_of_its_hop():
    watched, events = small(chain(), 1_000, 1_010)
    records = [
        (event.fields["topic"], event.fields["stage"], event.fields["records"])
        for event in events
        if event.topic == catalogue.THROUGHPUT
    ]
    assert sorted(records) == [("t0", "", 1), ("t1", "hop0", 1)]
    assert watched.counting.end(0).inputs == 1


def test_a_run_has_a_stage_for_the_whole_and_for_each_hop():
    watch = chain(
        thresholds=["hop1.p99_ms <= 15", "max_ms <= 100", "hop2.missing <= 0", "*.late <= 0"]
    )
    watched, _ = small(watch, 1_000, 1_010, 1_030)
    runs = WatchRuns(watch, {})
    begun, _ = runs.begin(0)
    assert begun.run.stages == ("whole", "hop0", "hop1", "hop2", "hop3", "hop4")
    totals, *hops = (each.end(0) for each in (watched.counting, *watched.hops))
    judged, concluded = runs.conclude(0, totals, (0, 10_000), {}, hops=hops)
    found = judged.detail
    assert concluded.detail["clean"] is False
    assert found["verdicts"]["path"]["hop2"]["missing"] == 1
    assert found["verdicts"]["path"]["hop1"]["exact"] == 1
    passed = {row["threshold"]: (row["value"], row["passed"]) for row in found["thresholds"]}
    assert passed["hop1.p99_ms <= 15"] == (20, False)
    assert passed["hop2.missing <= 0"] == (1, False)


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ({"hops": CHAIN["hops"][1:]}, "t1 in through needs a hop"),
        ({"through": CHAIN["through"][1:]}, "the hop hop0 has the topic t1, which is not in"),
        ({"stage": "hop3"}, "need different names"),
        ({"hops": [{"name": "a", "inputs": ["t5"], "outputs": ["t1"]}]}, "t5 cannot be an input"),
        ({"hops": [{"name": "a", "inputs": ["t1"], "outputs": ["t0"]}]}, "t0 cannot be an output"),
        ({"relation": {"kind": "join", "inputs": 2}}, "hops need kind"),
        ({"thresholds": ["hop9.p99_ms <= 1"]}, "the stages of this watch are whole, hop0"),
    ],
)
def test_a_path_that_cannot_be_watched_is_refused_with_the_reason(fields, mistake):
    with pytest.raises(ValidationError, match=mistake):
        chain(**fields)
