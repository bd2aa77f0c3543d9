"""Example queries about a run whose pipelines were measured alternately, each on its own input."""

import json

import pytest

from schemas import catalogue
from tests.benchmarks._results import NEW_YEAR_MS, PIPELINES, Event, run_events
from tests.integration.store_engine import project
from tests.integration.test_store_examples import example

pytestmark = pytest.mark.integration


def interleaved(events: list[Event]) -> list[Event]:
    """The events with input topics for each pipeline."""
    found = []
    for topic, record in events:
        if topic == catalogue.THROUGHPUT and not record["pipeline"]:
            found += [(topic, record | {"topic": f"{record['topic']}.{p}"}) for p in PIPELINES]
        elif record.get("event") == "run_requested":
            turns = {"interleaved": {"block_s": 1, "order": PIPELINES}}
            detail = json.dumps(json.loads(record["detail"]) | turns)
            found.append((topic, record | {"detail": detail}))
        else:
            found.append((topic, record))
    return found


def test_a_pipeline_keeps_up_with_its_own_input_alone(engine):
    project(engine, interleaved(list(run_events(0, 5, NEW_YEAR_MS))))
    rows = example(engine, "keeping-up")
    assert {(row["pipeline"], row["between"]) for row in rows} == {(p, "0") for p in PIPELINES}


def test_the_cost_of_a_pipeline_is_not_of_the_input_of_others(engine):
    project(engine, run_events(0, 5, NEW_YEAR_MS))
    project(engine, interleaved(list(run_events(1, 5, NEW_YEAR_MS + 3_600_000))))
    assert {row["run_id"] for row in example(engine, "cost")} == {"2026-000000"}
