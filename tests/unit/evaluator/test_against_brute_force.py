"""For any load, disorder, loss and reading order, the totals equal the oracle's."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.evaluator.expected.rows import BLOCK
from tests.traffic import TRAFFIC
from tests.unit.evaluator.oracle import expectations, judge
from tests.unit.evaluator.records import (
    DEADLINE_MS,
    FAR_MS,
    GIVE_UP_MS,
    START_MS,
    Output,
    Reading,
    Run,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]

TOPICS = (*TRAFFIC.topics, *(f"output.p.{stage}" for stage in TRAFFIC.stage_names))
# Delays of an output after its latest input: at and around every limit.
DELAYS_MS = (
    -DEADLINE_MS - 1,
    -DEADLINE_MS,
    -1,
    0,
    3,
    250,
    DEADLINE_MS,
    DEADLINE_MS + 1,
    GIVE_UP_MS,
    GIVE_UP_MS + 1,
    9_000,
)


@st.composite
def loads(draw):
    """Input records: any sites and lanes, some missing, some repeated, in any order of arrival."""
    first = draw(st.sampled_from([0, BLOCK - 4, -2]))
    readings = []
    for site in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        lanes = draw(st.integers(1, 2))
        for second in range(draw(st.integers(1, 4))):
            for lane in range(lanes):
                for kind in ("flow", "speed"):
                    for _copy in range(draw(st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2]))):
                        readings.append(
                            Reading(
                                kind,
                                0,
                                draw(st.integers(0, 6)) * (10 if kind == "flow" else 0.5),
                                first + len(readings),
                                START_MS + 1000 * second + draw(st.sampled_from([0, 0, 500, 999])),
                                START_MS * 1000 + draw(st.integers(0, 6_500_000)),
                                site,
                                f"lane{lane}",
                                lanes,
                            )
                        )
    return draw(appended(draw(st.permutations(readings))))


@st.composite
def appended(draw, readings):
    """LogAppendTimes that never decrease within a topic."""
    now_ms = dict.fromkeys(TRAFFIC.topics, START_MS)
    stamped = []
    for reading in readings:
        now_ms[reading.topic] += draw(st.sampled_from([0, 0, 1, 7, 120, 1_500]))
        stamped.append(replace(reading, appended_ms=now_ms[reading.topic]))
        if draw(st.integers(0, 19)) == 0:  # an exact copy of the record
            stamped.append(stamped[-1])
    return stamped


@st.composite
def answers(draw, readings):
    """Outputs of a pipeline that loses, repeats, corrupts, delays and invents outputs."""
    outputs = []
    for stage, due in expectations(readings).items():
        for expected in due.values():
            fate = draw(st.sampled_from(["good", "good", "good", "lost", "corrupt", "wild"]))
            for _copy in range(0 if fate == "lost" else draw(st.sampled_from([1, 1, 1, 2, 3]))):
                out_ms = expected.latest_ms + draw(st.sampled_from(DELAYS_MS))
                if stage == "ingest":
                    outputs.append(Output(stage, out_ms, None, expected.content))
                    continue
                fields = dict(expected.content)
                if fate in ("corrupt", "wild"):
                    corrupt(draw, fields, fate)
                outputs.append(Output(stage, out_ms, fields))
    for stage in draw(st.lists(st.sampled_from(TRAFFIC.stage_names), max_size=3)):
        outputs.append(Output(stage, START_MS + draw(st.integers(0, 9_000)), None, b"\xc3\x01no"))
    return sorted(outputs, key=lambda output: output.appended_ms)


def corrupt(draw, fields, fate):
    """Change a value (corrupt) or the identity of the output (wild)."""
    keys = ("sequence", "measurement_id", "lane", "observed_at", "window_start")
    names = [n for n in fields if n != "run_id" and (n in keys) == (fate == "wild")]
    name = draw(st.sampled_from(names))
    was = fields[name]
    if isinstance(was, str):
        fields[name] = draw(st.sampled_from(["a", "b", "lane1", "nowhere"]))
    elif was is None:
        fields[name] = 5
    else:
        fields[name] = was + draw(st.sampled_from([-1000, -1, 1, 1000, 10**6]))


@st.composite
def scenarios(draw):
    readings = draw(loads())
    return readings, draw(answers(readings))


def evaluate(readings, outputs, data):
    """Read all topics in any order and in any batches, with correct frontiers."""
    left = {topic: [] for topic in TOPICS}
    for record in (*readings, *outputs):
        left[record.topic].append(record)
    run = Run()
    while any(left.values()):
        topic = data.draw(st.sampled_from([topic for topic in TOPICS if left[topic]]))
        taken = data.draw(st.integers(1, len(left[topic])))
        run.add(*left[topic][:taken])
        del left[topic][:taken]
        if data.draw(st.booleans()):
            run.advance(frontier(left, TOPICS[:2]), frontier(left, TOPICS[2:]))
            run.totals()
    run.advance(FAR_MS)
    assert run.evaluation.open_in_measure() == 0
    return run.totals()


def frontier(left, topics):
    """The time before which everything appended to these topics has been read."""
    return min((left[topic][0].appended_ms for topic in topics if left[topic]), default=FAR_MS)


@given(scenario=scenarios(), data=st.data())
@settings(
    max_examples=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_totals_are_the_oracles_whatever_was_read_first(scenario, data):
    readings, outputs = scenario
    assert evaluate(readings, outputs, data) == judge(readings, outputs)
