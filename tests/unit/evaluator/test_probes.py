"""The offset of the clocks, from probe records."""

import pytest

from schemas.protocol import probe_run_id
from tests.unit.evaluator.records import RUN_ID, START_MS, Reading, Run

pytestmark = pytest.mark.unit


def probe(appended_ms, sent_ms):
    return Reading(
        "flow",
        START_MS + appended_ms,
        1,
        sequence=-1,
        scheduled_us=int((START_MS + sent_ms) * 1000),
        run_id=probe_run_id(RUN_ID),
    )


@pytest.mark.parametrize(
    ("records", "offset_ms", "complains"),
    [
        ([(10, 8), (30, 29), (50, 40)], 1.5, ""),
        ([(10, 12), (30, 34)], -3.5, ""),
        ([(10, 17)], -6.5, "6.5 ms ahead of the broker's"),
        ([(1_000, 100), (2_000, 1_400)], 600.5, "No probe record was appended within 600 ms"),
    ],
    ids=["a short way", "within what is tolerated", "ahead", "behind"],
)
def test_the_least_difference_is_the_offset(records, offset_ms, complains):
    run = Run("parse")
    run.add(*(probe(*times) for times in records), Reading("flow", START_MS + 2_100, 300))
    probes = run.evaluation.probes
    assert (probes.records, probes.offset_ms) == (len(records), offset_ms)
    assert complains in probes.complaint()
    assert bool(complains) == bool(probes.complaint())


def test_without_a_probe_there_is_nothing_to_say():
    run = Run("parse")
    run.add(Reading("flow", START_MS + 2_100, 300), Reading("flow", START_MS, 1, run_id="other"))
    assert (run.evaluation.probes.records, run.evaluation.probes.complaint()) == (0, "")
