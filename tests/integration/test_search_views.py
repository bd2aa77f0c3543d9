"""The SQL views of a search: its steps and its result, as published by the conductor."""

import json

import pytest

from schemas import catalogue
from schemas.content import Content
from schemas.validation_errors import DefinitionError
from services.definitions.pipelines import at_workers
from services.readmodel.history import at_sustainable_share
from services.readmodel.runs import runs_of_series
from services.store.engine import Query
from tests.integration.store_engine import insert_events, store_in_process
from tests.traffic import TRAFFIC
from tests.unit.conductor.search_events import A_RESULT, A_SILENT_STEP, A_STEP
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.integration

OF_TWO_STAGES = A_RESULT | {"stages": ["parse", "join"]}


@pytest.fixture(scope="module")
def engine(module_engine):
    told = [
        ("r1", "search_step", True, A_STEP),
        ("r1", "search_step", True, A_SILENT_STEP),
        ("r1", "sustainable_throughput", True, A_RESULT),
        ("r2", "sustainable_throughput", True, OF_TWO_STAGES | {"rate_per_second": 900.0}),
        ("r3", "sustainable_throughput", True, OF_TWO_STAGES | {"rate_per_second": 1000.0}),
        ("r4", "sustainable_throughput", False, OF_TWO_STAGES | {"rate_per_second": 7000.0}),
        ("r5", "sustainable_throughput", True, OF_TWO_STAGES | {"rate_per_second": None}),
    ]
    events = []
    for offset, (run_id, kind, valid, detail) in enumerate(told):
        event = {
            "run_id": run_id,
            "time": 1_700_000_000_000 + offset,
            "producer": "conductor",
            "kind": kind,
            "valid": valid,
            "invalid_reasons": [] if valid else ["90% of the rate found was not sustained."],
            "detail": json.dumps(detail),
        }
        events.append(event)
    insert_events(module_engine, catalogue.CONCLUSIONS, *events)
    scaled = {"series": "r2", "pipeline": "p", "workers": 2, "partitions": 4}
    asked = {"r1": None, "r2": scaled | {"workers": 1, "partitions": 2}, "r3": scaled, "r6": scaled}
    asked |= {"r4": None, "r5": None}
    request = a_request("spark-microbatch").model_dump(mode="json")
    requested = [
        a_lifecycle_event("run_requested", json.dumps(request | {"scaled": part}))
        | {"run_id": run_id, "time": 1_600_000_000_000 + offset}
        for offset, (run_id, part) in enumerate(asked.items())
    ]
    insert_events(module_engine, catalogue.LIFECYCLE, *requested)
    return module_engine


def rows(engine, sql, **parameters):
    query = Query(sql, "JSONEachRow", parameters=parameters)
    answer = engine.answer(query).data.decode()
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
            "undecided": False,
            "by_input_alone": False,
            "cold": False,
            "limited_by": "",
            "reasons": ["parse: median latency rises by 120 ms a second."],
            "steady": False,
            "moving": ["spark-microbatch parse: p50 rose by 1800 ms in 10 s, from 500 to 2300 ms"],
            "warm_up_s": 12,
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
            "undecided": False,
            "by_input_alone": False,
            "cold": False,
            "limited_by": "",
            "reasons": ["The generator was late.", "Nothing was observed."],
            "steady": None,
            "moving": [],
            "warm_up_s": None,
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
    sql = "SELECT * EXCEPT (time) FROM tidegauge.sustainable_rates WHERE run_id = 'r1'"
    (row,) = rows(engine, sql)
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
        "limited_by": "",
        "ended_by": "precision",
        "valid": True,
    }


def test_a_series_has_a_row_for_each_search_that_is_over(engine, monkeypatch):
    names = "run_id, series, pipeline, workers, partitions, rate_per_second, limited_by, valid"
    assert rows(engine, f"SELECT {names} FROM tidegauge.scalability ORDER BY run_id") == [
        {
            **{"run_id": "r2", "series": "r2", "pipeline": "p", "workers": 1, "partitions": 2},
            **{"rate_per_second": 900, "limited_by": "", "valid": True},
        },
        {
            **{"run_id": "r3", "series": "r2", "pipeline": "p", "workers": 2, "partitions": 4},
            **{"rate_per_second": 1000, "limited_by": "", "valid": True},
        },
    ]
    store_in_process(engine, monkeypatch)
    found = runs_of_series("", "r2")
    assert [run_id for run_id, _scaled in found] == ["r2", "r3", "r6"]
    assert found[0][1]["workers"] == 1


SPARK = a_request("spark-microbatch").pipelines[0]


def at_nine_tenths(engine, *stages, of_workload=None, **changes):
    """The rate of a run of these stages at nine tenths of the sustainable rate."""

    def ask(_url, sql, /, **names):
        return rows(engine, sql, **names)

    request = a_request("spark-microbatch")
    workload = request.workload.model_copy(update={"sustainable_share": 0.9} | (of_workload or {}))
    wanted = request.model_copy(update={"workload": workload, "stages": stages} | changes)
    return at_sustainable_share(wanted, "", ask).workload.load.rate_per_second


def test_the_rate_that_is_known_is_the_latest_valid_one_of_the_same_stages(engine, monkeypatch):
    assert at_nine_tenths(engine, "parse") == 5238
    assert at_nine_tenths(engine, "parse", "join") == 900
    assert at_nine_tenths(engine, "join", "parse") == 900
    with pytest.raises(DefinitionError, match="with the stages ingest of traffic, on such a"):
        at_nine_tenths(engine, "ingest")


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"cores": 64}},
        {"environment": {"processor": "another"}},
        {"domain": TRAFFIC.model_copy(update={"name": "other"})},
        {"pipelines": (at_workers(SPARK, 7),)},
        {
            "pipelines": (
                a_request("spark-microbatch").pipelines[0].model_copy(update={"cores": 1}),
            )
        },
        {"of_workload": {"transport": "tcp"}},
        {"of_workload": {"partitions": 7}},
        {"of_workload": {"content": Content(format="json")}},
    ],
)
def test_a_rate_of_other_circumstances_is_not_known(engine, monkeypatch, changes):
    with pytest.raises(DefinitionError, match="No sustainable rate is known"):
        at_nine_tenths(engine, "parse", **changes)
