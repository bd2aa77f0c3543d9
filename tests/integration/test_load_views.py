"""Which runs are comparable in SQL, and the rate at which a run was measured."""

import json

import pytest

from schemas import catalogue
from schemas.events import Preparing
from schemas.load import Sine
from schemas.protocol import RunPlan
from schemas.search import Search
from schemas.workload import Faults, Kill
from services.runtime.grafana_macros import TimeRange
from services.store.engine import Query
from services.store.engines.schema import DDL_DIR
from tests.benchmarks._results import NEW_YEAR_MS, latency_events, run_events, run_id_of
from tests.integration.dashboard_queries import dashboards, queries
from tests.integration.store_engine import insert_events, project
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.integration
REQUEST = a_request()
HOUR_MS = 3_600_000
PLAIN = "latency, traffic, 400/s, , 0 cores, 0 GB"


def requested(run_id, request):
    return a_lifecycle_event("run_requested", request.model_dump_json()) | {"run_id": run_id}


def with_workload(**changes):
    workload = REQUEST.workload.model_copy(update=changes)
    return REQUEST.model_copy(update={"workload": workload})


def prepared(run_id, rate_per_second):
    workload = REQUEST.workload.at_rate(rate_per_second)
    plan = RunPlan(
        request=REQUEST.model_copy(update={"workload": workload}),
        start_offsets={"traffic.flow": (0,)},
    )
    return a_lifecycle_event(Preparing.name, plan.model_dump_json()) | {"run_id": run_id}


def loads(engine, *events):
    insert_events(engine, catalogue.LIFECYCLE, *events)
    rows = engine.rows("SELECT * FROM tidegauge.run_loads ORDER BY run_id")
    return {row["run_id"]: row for row in rows}


def test_a_run_has_the_rate_that_was_prepared_not_the_one_that_a_search_began_with(engine):
    of_an_earlier_version = a_lifecycle_event(Preparing.name) | {"run_id": "old"}
    found = loads(
        engine,
        requested("found", REQUEST),
        prepared("found", 7_500),
        requested("asked", REQUEST),
        requested("old", REQUEST),
        of_an_earlier_version,
    )
    rates = {run_id: row["rate_per_second"] for run_id, row in found.items()}
    assert rates == {"found": 7_500, "asked": 400, "old": 400}
    assert found["found"]["load"] == PLAIN.replace("400", "7500")
    rows = engine.rows("SELECT DISTINCT run_id, rate_per_second FROM tidegauge.figures")
    assert {row["run_id"]: row["rate_per_second"] for row in rows} == rates


def test_a_run_that_is_only_prepared_and_a_step_of_a_search_are_no_loads(engine):
    step = REQUEST.model_copy(update={"step_of": "found"})
    assert not loads(engine, requested("step", step), prepared("step", 10), prepared("lost", 10))


def test_a_run_is_named_with_its_rate_unless_that_varies_from_run_to_run(engine):
    changed = {
        "plain": REQUEST,
        "search": with_workload(search=Search()),
        "share": with_workload(sustainable_share=1),
        "domain": REQUEST.model_copy(
            update={"domain": REQUEST.domain.model_copy(update={"name": "clicks"})}
        ),
    }
    loads(engine, *(requested(name, request) for name, request in changed.items()))
    rows = engine.rows("SELECT run_id, load_name FROM tidegauge.runs")
    assert {row["run_id"]: row["load_name"] for row in rows} == {
        "plain": "latency at 400/s",
        "search": "latency",
        "share": "latency",
        "domain": "latency at 400/s of clicks",
    }


def test_what_of_a_load_is_not_by_default_tells_it_from_others(engine):
    workload = REQUEST.workload
    changed = {
        "plain": REQUEST,
        "partitions": with_workload(partitions=4),
        "transport": with_workload(transport="tcp"),
        "format": with_workload(content=workload.content.model_copy(update={"format": "json"})),
        "windows": with_workload(windows={"tumbling_s": 20}),
        "faults": with_workload(faults=Faults(duplicate=0.01)),
        "kills": with_workload(kills=(Kill(target="driver", at_s=5),)),
        "shape": with_workload(
            load=Sine(rate_per_second=400, amplitude_per_second=200.5, period_s=100_000)
        ),
        "other shape": with_workload(
            load=Sine(rate_per_second=400, amplitude_per_second=200.5, period_s=100_001)
        ),
    }
    found = loads(engine, *(requested(name, request) for name, request in changed.items()))
    said = {name: row["load"] for name, row in found.items()}
    assert (said["plain"], said["partitions"]) == (PLAIN, PLAIN)
    assert len(set(said.values())) == len(changed) - 1
    assert said["transport"] == PLAIN.replace("/s,", "/s, transport tcp,")
    assert said["windows"] == PLAIN.replace("/s,", "/s, tumbling_s 20,")
    assert found["shape"]["settings"] == (
        'amplitude_per_second 200.5, period_s 100000, shape "sine"'
    )


def test_a_plain_request_of_an_earlier_version_reads_as_one_of_today(engine):
    fields = json.loads(REQUEST.model_dump_json())
    for name in ("windows", "transport", "kills", "search", "pipelines_start_s"):
        del fields["workload"][name]
    old = a_lifecycle_event("run_requested", json.dumps(fields)) | {"run_id": "old"}
    assert loads(engine, old)["old"]["load"] == PLAIN


@pytest.fixture
def ask(engine):
    """Rows of a query over two runs and, between them, a step of the second run's search."""

    def as_step(record):
        detail = json.loads(record["detail"]) | {"step_of": run_id_of(2)}
        return record | {"detail": json.dumps(detail)}

    events = []
    for number in range(3):
        start_ms = NEW_YEAR_MS + number * HOUR_MS
        for topic, record in (
            *run_events(number, 2, start_ms),
            *latency_events(number, 2, start_ms),
        ):
            is_request = record.get("event") == "run_requested"
            events.append((topic, as_step(record) if number == 1 and is_request else record))
    project(engine, events)
    return lambda sql: json.loads(engine.answer(Query(sql, "JSON")).data)["data"]


def example(name):
    (path,) = (DDL_DIR / "examples").glob(f"*_{name}.sql")
    return path.read_text()


def test_a_step_of_a_search_is_neither_the_run_before_nor_history(ask):
    rows = ask(example("compare-with-the-run-before"))
    assert {row["run_before"] for row in rows} == {run_id_of(0)}
    assert {row["run_id"] for row in ask(example("history"))} == {run_id_of(0), run_id_of(2)}


def test_a_step_of_a_search_is_no_baseline(ask):
    (live,) = (each for each in dashboards() if each["uid"] == "tidegauge-live")
    start_ms = NEW_YEAR_MS + 2 * HOUR_MS
    found = {q.name: q.sql for q in queries(live, TimeRange(start_ms, start_ms + 60_000), ask)}
    rows = ask(found["Latency against the baseline"])
    assert {int(row["baseline runs"]) for row in rows} == {1}
