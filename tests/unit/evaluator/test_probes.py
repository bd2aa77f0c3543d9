"""The clock offset, from probe records."""

import numpy as np
import pytest

from schemas.codec import encode_json
from schemas.protocol import Content, probe_run_id
from services.evaluator.pairing.evaluation import RecordBatch
from services.evaluator.run.reader import ClockOffset
from tests.traffic import CODEC
from tests.unit.evaluator.records import RUN_ID, START_MS, Reading, a_plan

pytestmark = pytest.mark.unit


def probes_after(*readings, wire_format="avro", **validity):
    plan = a_plan()
    workload = plan.request.workload
    rules = workload.validity.model_copy(update=validity)
    changes = {"validity": rules, "content": Content(format=wire_format)}
    workload = workload.model_copy(update=changes)
    request = plan.request.model_copy(update={"workload": workload})
    probes = ClockOffset(plan.model_copy(update={"request": request}))
    appended_ms = np.array([reading.appended_ms for reading in readings], np.int64)
    values = [reading.encoded for reading in readings]
    if wire_format == "json":
        values = [encode_json("traffic_flow", CODEC.decode(value)[1], CODEC) for value in values]
    probes.add(RecordBatch("traffic.flow", appended_ms, values))
    return probes


def probe(appended_ms, sent_ms):
    return Reading(
        "flow",
        START_MS + appended_ms,
        1,
        sequence=-1,
        scheduled_us=int((START_MS + sent_ms) * 1000),
        run_id=probe_run_id(RUN_ID),
    )


OF_THE_RUN = Reading("flow", START_MS + 2_100, 300)
OF_ANOTHER = Reading("flow", START_MS, 1, run_id="other")


@pytest.mark.parametrize(
    ("records", "offset_ms", "complains"),
    [
        ([(10, 8), (30, 29), (50, 40)], 1.5, ""),
        ([(10, 12), (30, 34)], -3.5, ""),
        ([(10, 17)], -6.5, "6.5 ms ahead of the broker's"),
        (
            [(1_000, 100), (2_000, 1_400)],
            600.5,
            "probe record was appended 600 ms after",
        ),
    ],
    ids=["a short way", "within what is tolerated", "ahead", "behind"],
)
def test_the_least_difference_is_the_offset(records, offset_ms, complains):
    probes = probes_after(*(probe(*times) for times in records), OF_THE_RUN)
    assert (probes.records, probes.offset_ms) == (len(records), offset_ms)
    assert complains in probes.complaint()
    assert bool(complains) == bool(probes.complaint())


@pytest.mark.parametrize(
    ("times", "rule"),
    [((10, 17), {"max_clock_ahead_ms": 7}), ((1_000, 100), {"max_clock_behind_ms": 901})],
)
def test_a_workload_may_tolerate_more(times, rule):
    assert probes_after(probe(*times)).complaint()
    assert not probes_after(probe(*times), **rule).complaint()


def test_probes_are_read_in_the_format_of_the_load():
    probes = probes_after(probe(30, 29), OF_THE_RUN, wire_format="json")
    assert (probes.records, probes.offset_ms) == (1, 1.5)


def test_without_a_probe_there_is_nothing_to_say():
    probes = probes_after(OF_THE_RUN, OF_ANOTHER)
    assert (probes.records, probes.complaint()) == (0, "")
