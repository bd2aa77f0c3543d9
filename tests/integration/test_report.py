"""The report of a run, asked of the tables: a run that ended early is told by what it measured."""

import json
from collections import Counter

import pytest

from schemas import catalogue, protocol
from services.console import disturbances, report, restarts
from services.store.engine import Query
from tests.integration.recorded_run import phase_ms, recorded, run_of
from tests.integration.store_engine import project

pytestmark = pytest.mark.integration

EVENTS = recorded()
RUN_ID = run_of(EVENTS)
START_MS, _END_MS = phase_ms(EVENTS, "measure")


@pytest.fixture
def build(engine, monkeypatch):
    """The report of the recorded run when the bus has some of its events only."""

    def query(_url, sql, **parameters):
        answer = engine.answer(Query(sql, "JSONEachRow", parameters=parameters))
        return [json.loads(line) for line in answer.data.decode().splitlines()]

    for module in (report, restarts, disturbances):
        monkeypatch.setattr(module, "query", query)

    def built(events):
        project(engine, events)
        return report.build_report("", RUN_ID)

    return built


def rates(found):
    """Records per second of the input, and of every stage by pipeline."""
    stages = {
        (name, stage): cell["records_per_second"]
        for name, one in found["pipelines"].items()
        for stage, cell in one["stages"].items()
    }
    return stages | {"input": found["input"]["records_per_second"]}


def test_rates_of_a_run_that_was_interrupted_are_those_of_the_seconds_it_had(build):
    half_ms = START_MS + 10_000
    cut = [(t, record) for t, record in EVENTS if record.get("second", record["time"]) < half_ms]
    counted = Counter()
    for topic, record in cut:
        if topic == catalogue.GENERATOR and record["phase"] == "measure":
            counted["input"] += record["acknowledged"]
        elif topic == catalogue.THROUGHPUT and record["second"] >= START_MS and record["pipeline"]:
            counted[record["pipeline"], record["stage"]] += record["records"]
    assert rates(build(cut)) == {name: records / 10 for name, records in counted.items()}
    assert counted["input"] == 4_000  # at 400 records/s


def test_a_run_that_ended_before_it_measured_has_no_rates(build):
    cut = [
        (topic, record)
        for topic, record in EVENTS
        if topic == catalogue.LIFECYCLE and record["event"] == protocol.RUN_REQUESTED
    ]
    found = build(cut)
    assert found["invalid_reasons"] == ["The run is not concluded."]
    assert set(rates(found).values()) == {0.0}
