"""What SQL says of a search: its steps and its result, as the conductor tells them."""

import json

import pytest

from schemas import catalogue
from services.store.engine import Query
from tests.integration.store_engine import insert_events
from tests.unit.conductor.search_events import A_RESULT, A_SILENT_STEP, A_STEP

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engine(module_engine):
    told = [
        ("search_step", A_STEP),
        ("search_step", A_SILENT_STEP),
        ("sustainable_throughput", A_RESULT),
    ]
    events = []
    for offset, (kind, detail) in enumerate(told):
        event = {
            "run_id": "r1",
            "time": 1_700_000_000_000 + offset,
            "producer": "conductor",
            "kind": kind,
            "valid": True,
            "invalid_reasons": [],
            "detail": json.dumps(detail),
        }
        events.append(event)
    insert_events(module_engine, catalogue.CONCLUSIONS, *events)
    return module_engine


def rows(engine, sql):
    answer = engine.answer(Query(sql, "JSONEachRow")).data.decode()
    return [json.loads(line) for line in answer.splitlines()]


def test_every_step_has_its_evidence(engine):
    sql = "SELECT * EXCEPT (time) FROM tidegauge.search_steps ORDER BY step"
    assert rows(engine, sql) == [
        {
            "run_id": "r1",
            "step": 1,
            "step_run_id": "r1-step-01",
            "rate_per_second": 8000,
            "measured_s": 15,
            "sustained": False,
            "reasons": ["parse: median latency rises by 120 ms a second."],
            "cpu_share": 0.5,
            "failed_sends": 0,
            "stage": "parse",
            "highest_median_ms": 2300,
            "rise_ms_per_s": 120,
            "longest_queue_records": 16000,
            "drained_s": 3,
            "missing": 0,
        },
        {
            "run_id": "r1",
            "step": 2,
            "step_run_id": "r1-step-02",
            "rate_per_second": 4000,
            "measured_s": 15,
            "sustained": False,
            "reasons": ["The generator was late.", "Nothing was observed."],
            "cpu_share": None,
            "failed_sends": 0,
            "stage": "",
            "highest_median_ms": None,
            "rise_ms_per_s": None,
            "longest_queue_records": None,
            "drained_s": None,
            "missing": 0,
        },
    ]


def test_the_result_is_there(engine):
    (row,) = rows(engine, "SELECT * EXCEPT (time) FROM tidegauge.sustainable_rates")
    assert row == {
        "run_id": "r1",
        "pipeline": "spark-microbatch",
        "stages": ["parse"],
        "policy": "steady-latency",
        "rate_per_second": 5820,
        "interval_per_second": [5820, 6600],
        "confirmed": True,
        "verified": True,
        "verified_at_per_second": 5238,
        "limit_reasons": ["parse: median latency rises by 40 ms a second."],
        "valid": True,
    }
