"""A watch of a path of topics whose process is killed: each planted loss and duplicate is on its
hop, and all counts are those of a brute force over the topics."""

import json
import random
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from schemas.watch import Cluster, Watch, WatchedKafka
from services.definitions.watches import keep_watch
from tests.integration.service_process import running_service
from tests.integration.test_watch import process_of
from tests.integration.watched_bus import a_watch, await_conclusion, await_pairs, concluded
from tests.integration.watched_pipeline import (
    Load,
    Pipeline,
    brute_force,
    identified,
    make_topics,
)

pytestmark = pytest.mark.integration
HOPS, RECORDS, FAULTS = 5, 4_000, 300
TOPICS = [f"path_{number}" for number in range(HOPS + 1)]
PATIENT = {"deadline_ms": 5_000, "give_up_ms": 8_000, "remember_ms": 30_000}


def of_stages(records, watch):
    """Latencies and verdicts by stage, from published events."""
    latencies, verdicts = defaultdict(Counter), defaultdict(Counter)
    for name, record in records:
        if not record["run_id"].startswith(f"watch-{watch.name}-"):
            continue
        if name == "results_latency":
            counts = dict(zip(record["latencies_ms"], record["counts"], strict=True))
            latencies[record["stage"]].update(counts)
        elif name == "results_verdicts":
            for verdict in ("exact", "late", "missing", "duplicate", "unexpected"):
                verdicts[record["stage"]][verdict] += record[verdict]
    return {stage: (+latencies[stage], +verdicts[stage]) for stage in verdicts}


def by_brute_force(watch, inputs, outputs):
    """The same of one stage from pairs of identity and time."""
    latencies, verdicts = Counter(), Counter()
    for part in range(100):
        sides = (
            [each for each in side if int(each[0]) % 100 == part] for side in (inputs, outputs)
        )
        found_latencies, found_verdicts = brute_force(watch, *sides)
        latencies.update(sum(found_latencies.values(), Counter()))
        verdicts.update(sum(found_verdicts.values(), Counter()))
    return +latencies, +verdicts


def test_each_loss_and_duplicate_is_on_its_hop_though_the_process_is_killed(broker, tmp_path):
    make_topics(broker.bootstrap, **dict.fromkeys(TOPICS, 2))
    watch = a_watch(
        broker,
        "path",
        stage="whole",
        relation=PATIENT,
        inputs=[{"topic": TOPICS[0]}],
        through=[{"topic": topic} for topic in TOPICS[1:-1]],
        outputs=[{"topic": TOPICS[-1]}],
        hops=[
            {"name": f"hop{number}", "inputs": [before], "outputs": [after]}
            for number, (before, after) in enumerate(pairwise(TOPICS))
        ],
        thresholds=["hop2.missing <= 0"],
    )
    chance = random.Random(55)
    faulty = chance.sample(range(RECORDS), 2 * FAULTS)
    lost = {name: chance.randrange(HOPS) for name in faulty[:FAULTS]}
    doubled = {name: chance.randrange(HOPS) for name in faulty[FAULTS:]}

    def passed_on(message):
        name, hop = int(message.key()), TOPICS.index(message.topic())
        record = (TOPICS[hop + 1], message.key(), b"", None)
        if lost.get(name) != hop:
            yield 0.0, record
            if doubled.get(name) == hop:
                yield 0.1, record

    def made(number):
        yield TOPICS[0], str(number).encode(), b"", None

    load = Load(broker.bootstrap, made, count=RECORDS, per_second=400)
    pipeline = Pipeline(broker.bootstrap, TOPICS[:-1], passed_on)
    keep_watch(tmp_path, watch)
    with running_service(broker, "watcher", tmp_path) as service:
        pipeline.start()
        load.start()
        watching = process_of(service, "path")
        await_pairs(broker, watch, 500)
        watching.kill()
        process_of(service, "path", other_than=watching.pid)
        load.join()
        expected_ends = RECORDS - FAULTS + FAULTS
        read = []

        def at_end():
            read[:] = [
                identified(broker.bootstrap, [t], lambda m: m.key().decode()) for t in TOPICS
            ]
            return len(read[-1]) == expected_ends

        while not at_end():
            assert pipeline.is_alive()
        pipeline.end()
        records = await_conclusion(broker, watch, max(ms for side in read for _, ms in side))
    measured = of_stages(records, watch)
    for hop, (inputs, outputs) in enumerate(pairwise(read)):
        assert measured[f"hop{hop}"] == by_brute_force(watch, inputs, outputs)
        verdicts = measured[f"hop{hop}"][1]
        assert verdicts["missing"] == Counter(lost.values())[hop]
        assert verdicts["duplicate"] == Counter(doubled.values())[hop]
    assert measured["whole"] == by_brute_force(watch, read[0], read[-1])
    assert measured["whole"][1]["missing"] == measured["whole"][1]["duplicate"] == FAULTS
    assert inferred(broker.bootstrap) == [
        (f"path_{number}", (before,), (after,))
        for number, (before, after) in enumerate(pairwise(TOPICS), 1)
    ]
    details = [json.loads(each["detail"]) for each in concluded(records, watch).values()]
    assert all(each["valid"] for each in concluded(records, watch).values())
    of_runs = Counter()
    for detail in details:
        of_runs["missing"] += detail["verdicts"]["path"]["hop2"]["missing"]
        (row,) = detail["thresholds"] or [None]
        of_runs["by threshold"] += row["value"] or 0
    assert of_runs["missing"] == of_runs["by threshold"] == measured["hop2"][1]["missing"]


def inferred(bootstrap):
    """The hops of the watch file that is suggested for the topics."""
    done = subprocess.run(
        [sys.executable, "-m", "services.watcher.inferring", *TOPICS],
        input=Cluster(kafka=WatchedKafka(bootstrap=bootstrap)).model_dump_json(),
        capture_output=True,
        text=True,
        check=True,
    )
    suggested = Watch.model_validate(tomllib.loads(done.stdout))
    sides = (*suggested.inputs, *suggested.through, *suggested.outputs)
    assert [(side.topic, side.identity) for side in sides] == [(each, ("key",)) for each in TOPICS]
    return [(hop.name, hop.inputs, hop.outputs) for hop in suggested.hops]
