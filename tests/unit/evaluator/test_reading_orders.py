"""The same records give the same verdicts, latencies and samples, however they are read: topics and
partitions in any order, divided into any batches, by a process that takes over, by two instances.

Two sites, each in its own partition; outputs before and after their inputs, repeated, in another
partition, with another key; inputs that are late, missing, repeated or disagree on the number of
lanes.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.protocol import Pipeline, RunPlan
from services.evaluator.pairing.counters import MAX_SAMPLES
from services.evaluator.pairing.evaluation import Evaluation
from services.runtime.counting import CountReconciler
from tests.traffic import TRAFFIC
from tests.unit.evaluator.oracle import expectations, judge
from tests.unit.evaluator.records import (
    BUILT_IN,
    DEADLINE_MS,
    FAR_MS,
    MEASURE_MS,
    PHASES,
    START_MS,
    Output,
    Reading,
    Run,
    Totals,
    a_plan,
    samples_of,
    tumbled,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]

PARTITIONS = {"a": 0, "b": 1}
STEPS_MS = (0, 0, 1, 1, 2, 40, DEADLINE_MS, 2_500)
DELAYS_MS = (-DEADLINE_MS - 1, -DEADLINE_MS, -40, -1, 0, 0, 1, 40, DEADLINE_MS, DEADLINE_MS + 1)
EVERY = 1_000
ALL = TRAFFIC.stage_names
PIPELINES = [
    BUILT_IN,
    *(
        Pipeline(name="p", summary="-", engine="spark", stages=stages)
        for stages in (ALL, ALL[2:], ALL[:2])
    ),
]


@st.composite
def inputs(draw):
    """Records of two sites, with LogAppendTimes that never decrease within a partition."""
    numbers = iter(range(1_000))
    appended_ms = {}
    found = []
    for second in range(draw(st.integers(1, 3))):
        for site in PARTITIONS:
            lanes = draw(st.integers(1, 2))
            every = [(kind, lane) for lane in range(lanes) for kind in ("flow", "speed")]
            every += draw(st.lists(st.sampled_from(every), max_size=1))
            for kind, lane in draw(st.permutations(every))[draw(st.sampled_from([0, 0, 0, 1])) :]:
                log = (kind, site)
                step_ms = draw(st.sampled_from(STEPS_MS))
                appended_ms[log] = appended_ms.get(log, MEASURE_MS) + step_ms
                number = next(numbers)
                one = Reading(
                    kind,
                    appended_ms[log],
                    10 * number if kind == "flow" else 0.5 * number,
                    number,
                    START_MS + 1_000 * second,
                    (MEASURE_MS - 500 + 100 * number) * 1_000,
                    site,
                    f"lane{lane}",
                    max(1, lanes - draw(st.sampled_from([0] * 9 + [1]))),
                )
                found += [one] * draw(st.sampled_from([1] * 9 + [2]))
    return found


@st.composite
def outputs(draw, readings, publishes):
    """Outputs of a pipeline at any time: those due then, or later, or others."""
    times = sorted({one.appended_ms for one in readings})
    found = []
    for time_ms in draw(st.lists(st.sampled_from(times), min_size=1, max_size=8)):
        past = [one for one in readings if one.appended_ms <= time_ms]
        for stage, due in expectations(past, publishes).items():
            if not due:
                continue
            expected = draw(st.sampled_from(list(due.values())))
            out_ms = time_ms + draw(st.sampled_from(DELAYS_MS))
            site = expected.inputs[0].site
            key = draw(st.sampled_from([site.encode()] * 6 + [None, b"", b"b", b"\xff"]))
            output = Output(stage, out_ms, None, b"", key, PARTITIONS[site])
            if stage == "ingest":
                output = replace(output, raw=expected.content)
            elif draw(st.integers(0, 5)) == 0 and stage == "tumbling":
                output = replace(output, fields=expected.content | {"lanes": 9})
            else:
                output = replace(output, fields=expected.content)
            found += [output] * draw(st.sampled_from([1, 1, 1, 2]))
    for out_ms in draw(st.lists(st.integers(MEASURE_MS, MEASURE_MS + 3_000), max_size=2)):
        found.append(Output("tumbling", out_ms, tumbled(1, 5, 5.0, measurement_id="nowhere")))
    return found


@dataclass(frozen=True)
class Case:
    """A pipeline, and the records of every topic and partition, ordered by offset."""

    pipeline: Pipeline
    logs: dict

    @property
    def stages(self):
        return self.pipeline.stages

    @property
    def totals(self):
        """The totals of the brute force."""
        records = [one for log in self.logs.values() for one in log]
        totals = judge(
            [one for one in records if isinstance(one, Reading)],
            [one for one in records if isinstance(one, Output)],
            self.pipeline.incomplete_windows == "publish",
        )
        for name, counts in vars(totals).items():
            mine = {where: n for where, n in counts.items() if where[0] in self.stages}
            setattr(totals, name, Counter(mine))
        return totals


@st.composite
def cases(draw, instances):
    """With several instances every output is in the partition of its measurement id's inputs."""
    pipeline = draw(st.sampled_from(PIPELINES))
    publishes = pipeline.incomplete_windows == "publish"
    readings = draw(inputs())
    said = draw(outputs(readings, publishes))
    if instances == 1:
        said = [
            replace(one, partition=draw(st.sampled_from([one.partition] * 3 + [0, 1])))
            for one in said
        ]
    case = Case(pipeline, {})
    for one in (*readings, *sorted(said, key=lambda one: one.appended_ms)):
        if isinstance(one, Reading):
            case.logs.setdefault((one.topic, PARTITIONS[one.site]), []).append(one)
        elif one.stage in case.stages:
            case.logs.setdefault((one.topic, one.partition), []).append(one)
    return case


class Instance:
    """One process that reads partitions in any order and in any batches."""

    def __init__(self, case, partitions):
        self._left = {log: [*every] for log, every in case.logs.items() if log[1] in partitions}
        request = a_plan(case.stages).request.model_copy(update={"pipelines": (case.pipeline,)})
        self._run = Run(*case.stages)
        self._run.evaluation = Evaluation(RunPlan(request=request, start_offsets={}), PHASES)
        self.events = []

    def read(self, topic, counts):
        """A batch of one topic with up to the given number of records of each partition."""
        batch = []
        for partition, count in counts.items():
            left = self._left.get((topic, partition), [])
            batch += left[:count]
            del left[:count]
        self._run.add(*batch)

    def read_in_any_order(self, data):
        """Batches of any topics, with publishing in between."""
        topics = sorted({topic for topic, _ in self._left})
        for _ in range(data.draw(st.integers(0, 12)) if topics else 0):
            counts = {partition: data.draw(st.integers(0, 9)) for partition in (1, 0)}
            self.read(data.draw(st.sampled_from(topics)), counts)
            if data.draw(st.booleans()):
                self.publish()

    def read_the_rest(self, topics):
        """All remaining records, topic by topic."""
        for topic in topics:
            self.read(topic, {0: EVERY, 1: EVERY})
        self.publish()

    def publish(self):
        """Advance the frontiers as far as has been read, and publish what is due."""
        self._run.advance(self._frontier("traffic."), self._frontier("output."))
        self.events += self._run.evaluation.take_events()

    def _frontier(self, prefix):
        logs = [left for (topic, _), left in self._left.items() if topic.startswith(prefix)]
        return min((left[0].appended_ms for left in logs if left), default=FAR_MS)


def live(case, partitions, data):
    """Events of a process that may be replaced by another one."""
    topics = sorted({topic for topic, _ in case.logs})
    published = []
    if data.draw(st.booleans()):
        killed = Instance(case, partitions)
        killed.read_in_any_order(data)
        published = killed.events
    owed = CountReconciler()
    for topic, fields in published:
        owed.deduct(topic, fields)
    instance = Instance(case, partitions)
    instance.read_in_any_order(data)
    instance.read_the_rest(data.draw(st.permutations(topics)))
    for topic, fields in instance.events:
        owed.count(topic, fields)
    return [*published, *owed.events()]


def evaluated(case):
    """Events of one process that reads all records at once."""
    instance = Instance(case, (0, 1))
    instance.read_the_rest(sorted({topic for topic, _ in case.logs}))
    return instance.events


def totals_of(events):
    totals = Totals()
    totals.count_events(events)
    return totals.without_nothing()


def samples(events):
    """Samples, except those of missing outputs, which may have arrived later. None if a second has
    so many offenders that only some are published."""
    if max(totals_of(events).verdict_seconds.values(), default=0) > MAX_SAMPLES:
        return None
    return {one for one in samples_of(events) if json.loads(one)["verdict"] != "missing"}


PROPERTY = settings(
    max_examples=120,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(case=cases(instances=1), data=st.data())
@PROPERTY
def test_live_restarted_and_evaluated_again_are_the_brute_force(case, data):
    found, again = live(case, (0, 1), data), evaluated(case)
    assert totals_of(found) == totals_of(again) == case.totals
    assert samples(found) == samples(again)


@given(case=cases(instances=2), data=st.data())
@PROPERTY
def test_two_instances_are_one(case, data):
    found = [*live(case, (0,), data), *live(case, (1,), data)]
    assert totals_of(found) == case.totals
    assert samples(found) == samples(evaluated(case))
