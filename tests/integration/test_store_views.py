"""The views of the store are exact: histograms, sums and runs."""

import json
import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from schemas import catalogue
from schemas.percentiles import LEVELS
from tests.integration.store_engine import (
    insert_events,
    insert_latencies,
)
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration


def test_percentiles_are_the_nearest_ranks_of_all_outputs(engine):
    levels = {
        **{"p5": (1, 20), "p25": (1, 4), "p50": (1, 2), "p75": (3, 4), "p90": (9, 10)},
        **{"p95": (19, 20), "p99": (99, 100), "p999": (999, 1_000), "p99999": (99_999, 100_000)},
    }
    assert levels.keys() == LEVELS.keys()
    numbers = count()

    @hypothesis_settings(deadline=None, max_examples=50)
    @given(st.dictionaries(st.integers(-5, 10**6), st.integers(1, 3000), min_size=1, max_size=8))
    def check(histogram):
        run = f"run-{next(numbers)}"
        insert_latencies(engine, run, join=histogram)
        (row,) = engine.rows(f"SELECT * FROM tidegauge.latency_summary WHERE run_id = '{run}'")
        outputs = sorted(value for value, times in histogram.items() for _n in range(times))
        for name, (part, whole) in levels.items():
            rank = -(-len(outputs) * part // whole)
            assert row[f"{name}_ms"] == outputs[rank - 1]
        assert (row["count"], row["min_ms"], row["max_ms"]) == (
            len(outputs),
            outputs[0],
            outputs[-1],
        )
        assert math.isclose(row["mean_ms"], sum(outputs) / len(outputs))
        # Quarters of outputs, so that the middle half has whole ones.
        quarters = sorted(4 * outputs)[len(outputs) : 3 * len(outputs)]
        middle_ms = sum(quarters) / len(quarters)
        assert math.isclose(row["middle_ms"], middle_ms, rel_tol=1e-9, abs_tol=1e-9)

    check()


def request(run, **body):
    head = {"run_id": run, "time": NEW_YEAR_MS, "producer": "c", "event": "run_requested"}
    return head | {"phase": "", "pipeline": "", "stage": "", "detail": json.dumps(body)}


# Run, topology of its pipeline (none in old runs), and what stages read there.
CHAINS = (
    ("r", "via-topics", {}),
    ("chained", "chained", {"sums": "joined", "none": "joined"}),
    ("independent", "independent", {}),
    ("earlier", None, {}),
)


def costs(engine, run):
    rows = engine.rows(
        "SELECT stage, stage_before, p50_cost_ms FROM tidegauge.stage_cost"
        f" WHERE run_id = '{run}' ORDER BY p50_ms"
    )
    return [tuple(row.values()) for row in rows]


def test_a_stage_of_a_chain_costs_what_it_adds_to_the_stage_that_it_is_made_of(engine):
    stages = [
        {"name": "copied", "kind": "copy", "reads": ["a", "b"]},
        {"name": "parsed", "kind": "decode", "reads": ["copied"]},
        {"name": "joined", "kind": "join", "reads": ["parsed"]},
        {"name": "sums", "kind": "aggregate", "reads": ["parsed"]},
        {"name": "changes", "kind": "change", "reads": ["sums"]},
    ]
    domain = {"name": "d", "stages": stages}
    for run, topology, reads in CHAINS:
        asked = {"stages": ["parsed"], "domain": domain}
        asked["pipelines"] = [{"name": "p", "engine": "e", "reads": reads}]
        if topology is not None:
            asked["topologies"] = {"p": topology}
        insert_events(engine, catalogue.LIFECYCLE, request(run, **asked))
        measured = {"changes": {20: 1}, "sums": {9: 1}, "copied": {2: 1}, "joined": {5: 99, 8: 1}}
        insert_latencies(engine, run, **measured)
    found = {run: costs(engine, run) for run, _topology, _reads in CHAINS}
    via_topics = [
        ("copied", None, None),
        ("joined", "copied", 3),  # parsed was not measured
        ("sums", "copied", 7),
        ("changes", "sums", 11),
    ]
    none = [(stage, None, None) for stage, _before, _cost in via_topics]
    assert found == {
        "r": via_topics,
        "chained": [*via_topics[:2], ("sums", "joined", 4), via_topics[3]],
        "independent": none,
        "earlier": none,
    }
    assert engine.rows(
        "SELECT * EXCEPT requested_at FROM tidegauge.run_pipelines WHERE run_id = 'chained'"
    ) == [
        {
            "run_id": "chained",
            "pipeline": "p",
            "engine": "e",
            "topology": "chained",
            "reads": {"sums": "joined", "none": "joined"},
        }
    ]
    found = engine.rows(
        "SELECT * EXCEPT requested_at FROM tidegauge.run_stages WHERE run_id = 'r'"
        " ORDER BY position"
    )
    assert tuple(found[0].values()) == ("r", "d", "copied", 1, "copy", [])
    assert tuple(found[4].values()) == (
        "r",
        "d",
        "changes",
        5,
        "change",
        ["sums", "parsed", "copied"],
    )


def test_stages_of_a_run_without_a_domain_are_those_that_were_asked_for(engine):
    insert_events(
        engine, catalogue.LIFECYCLE, request("r", stages=["ingest", "parse", "join", "tumbling"])
    )
    found = engine.rows("SELECT stage, position FROM tidegauge.stage_positions ORDER BY position")
    assert [tuple(row.values()) for row in found] == [
        ("ingest", 1),
        ("parse", 2),
        ("join", 3),
        ("tumbling", 4),
    ]


def test_generator_sums_and_delays_add_up_over_events(engine):
    head = {"run_id": "r", "time": NEW_YEAR_MS, "producer": "g", "phase": "measure"}
    first = {"second": 0, "intended": 3, "sent": 3, "acknowledged": 2, "failed": 1}
    second = {"second": 1000, "intended": 1, "sent": 1, "acknowledged": 1, "failed": 0}
    insert_events(
        engine,
        catalogue.GENERATOR,
        head | first | {"send_delays_us": [100, 300], "counts": [2, 1]},
        head | second | {"send_delays_us": [9000], "counts": [1], "queue_full_us": 8_500},
    )
    table = "tidegauge.results_generator"
    full = list(engine.rows(f"SELECT queue_full_us FROM {table} ORDER BY second"))
    assert [row["queue_full_us"] for row in full] == [0, 8_500]
    (row,) = engine.rows("SELECT * FROM tidegauge.generator_summary")
    assert row == {
        "run_id": "r",
        "phase": "measure",
        "intended": 4,
        "sent": 4,
        "acknowledged": 3,
        "failed": 1,
        "send_delay_p50_ms": 0.1,
        "send_delay_p99_ms": 9,
        "send_delay_max_ms": 9,
    }
    delays = engine.rows("SELECT send_delay_us, count FROM tidegauge.generator_send_delays")
    assert [(row["send_delay_us"], row["count"]) for row in delays] == [
        (100, 2),
        (300, 1),
        (9000, 1),
    ]


def test_there_are_no_delays_if_nothing_was_sent(engine):
    event = {"run_id": "r", "time": NEW_YEAR_MS, "producer": "g", "phase": "measure", "second": 0}
    counts = {"intended": 3, "sent": 0, "acknowledged": 0, "failed": 3}
    histogram = {"send_delays_us": [], "counts": []}
    insert_events(engine, catalogue.GENERATOR, event | counts | histogram)
    names = ("p50", "p99", "max")
    sql = ", ".join(f"send_delay_{name}_ms AS {name}" for name in names)
    (row,) = engine.rows(f"SELECT {sql} FROM tidegauge.generator_summary")
    assert row == dict.fromkeys(names)


def test_resources_are_weighed_by_their_intervals(engine):
    sample = {
        "run_id": "r",
        "time": NEW_YEAR_MS,
        "producer": "c",
        "service": "store",
        "pipeline": "",
        "interval_s": 1.0,
        "cpu_seconds": 0.5,
        "memory_bytes": 10,
        "processes": 1,
        "threads": 4,
    }
    longer = sample | {"interval_s": 3.0, "cpu_seconds": 0.5, "memory_bytes": 7}
    insert_events(engine, catalogue.RESOURCES, sample, longer)
    (row,) = engine.rows("SELECT * FROM tidegauge.resources_summary")
    assert (row["mean_cpu_cores"], row["cpu_seconds"], row["max_memory_bytes"]) == (0.25, 1.0, 10)


def test_a_run_is_one_row_from_its_request_to_its_conclusion(engine):
    def event(name, after_ms, phase="", detail=None):
        return {
            "run_id": "r",
            "time": NEW_YEAR_MS + after_ms,
            "producer": "conductor",
            "event": name,
            "pipeline": "",
            "stage": "",
            "phase": phase,
            "detail": json.dumps(detail or {}),
        }

    request = {"workload": {"name": "latency"}, "pipelines": [{"name": "a"}, {"name": "b"}]}
    told = {"valid": False, "clean": True, "invalid_reasons": ["One.", "Two."]}
    insert_events(
        engine,
        catalogue.LIFECYCLE,
        event("run_requested", 0, detail=request),
        event("phase_started", 1000, "warm_up"),
        event("phase_started", 2000, "measure"),
        event("concluded", 9000, detail=told),
        event("run_requested", 10_000, detail=request) | {"run_id": "s"},
    )
    done, begun = engine.rows("SELECT * FROM tidegauge.runs ORDER BY run_id")
    assert (done["workload"], done["pipelines"]) == ("latency", ["a", "b"])
    assert done["requested_at"] == "2026-01-01 00:00:00.000"
    assert (done["measure_at"], done["drain_at"]) == ("2026-01-01 00:00:02.000", None)
    assert (done["concluded"], done["valid"], done["clean"]) == (1, 0, 1)
    assert done["invalid_reasons"] == ["One.", "Two."]
    assert (begun["concluded"], begun["valid"], begun["clean"]) == (0, None, None)
    assert (done["steady"], done["warm_up_s"], done["moving"]) == (None, None, [])


def concluded(run_id, **detail):
    """The conclusion of a run."""
    return {
        "run_id": run_id,
        "time": NEW_YEAR_MS,
        "producer": "conductor",
        "kind": "run",
        "valid": True,
        "invalid_reasons": [],
        "detail": json.dumps({"clean": True, **detail}),
    }


def test_whose_the_late_seconds_are_is_one_row_per_run_that_said_so(engine):
    late = {
        "seconds": 3,
        "of_seconds": 30,
        "by": {"broker": 2, "pipeline": 1},
        "disturbed_by": ["broker"],
        "said": "Disturbed: 3 of 30 seconds were late.",
    }
    insert_events(
        engine,
        catalogue.CONCLUSIONS,
        concluded("r", disturbed=True, late=late, room={}),
        concluded("s", disturbed=None, late=late | {"by": {}, "disturbed_by": [], "said": ""}),
        concluded("before"),
    )
    found, unknown = engine.rows(
        "SELECT * EXCEPT (time) FROM tidegauge.run_attribution ORDER BY run_id"
    )
    assert found == {
        "run_id": "r",
        "disturbed": 1,
        "disturbed_by": ["broker"],
        "seconds": 30,
        "late_seconds": 3,
        "late_by": {"broker": 2, "pipeline": 1},
        "said": "Disturbed: 3 of 30 seconds were late.",
    }
    assert unknown["disturbed"] is None


def test_the_room_of_a_run_is_one_row_per_part(engine):
    machine = {"steal_share": 0.0, "cpu_pressure_share": 0.5, "others_cores": 0.1}
    room = {
        "broker": {"cpu_cores": 0.5, "cpu_share": 0.25, "waiting_share": 0.125},
        "machine": {"cpu_cores": 2.0, "cpu_share": 1.0, "waiting_share": None, "saturated": True}
        | machine,
    }
    insert_events(engine, catalogue.CONCLUSIONS, concluded("r", room=room), concluded("before"))
    broker, whole = engine.rows("SELECT * FROM tidegauge.run_room ORDER BY part")
    assert (broker["part"], broker["cpu_cores"], broker["waiting_share"]) == ("broker", 0.5, 0.125)
    assert (broker["saturated"], broker["others_cores"]) == (None, None)
    assert (whole["saturated"], whole["cpu_pressure_share"], whole["waiting_share"]) == (
        1,
        0.5,
        None,
    )


def test_the_floor_of_a_run_is_that_of_the_valid_plain_copy_before_it(engine):
    late = concluded("late-floor") | {"valid": False}
    insert_events(engine, catalogue.CONCLUSIONS, concluded("r-floor"), late)
    floors = (("r-floor", [1, 2, 9]), ("r", [50, 60, 70]), ("late-floor", [5, 6, 7]))
    for run_id, latencies in floors:
        event = {
            "run_id": run_id,
            "time": NEW_YEAR_MS,
            "producer": "evaluator",
            "pipeline": "floor",
            "stage": "ingest",
            "definition": "latest",
            "phase": "measure",
            "second": NEW_YEAR_MS,
            "latencies_ms": latencies,
            "counts": [98, 1, 1],
        }
        insert_events(engine, catalogue.LATENCY, event)
    (row,) = engine.rows("SELECT * FROM tidegauge.run_floor")
    assert (row["run_id"], row["outputs"], row["p50_ms"], row["p99_ms"]) == ("r", 100, 1, 2)


def test_runs_say_whether_they_were_steady(engine):
    moving = ["a join: p50 fell by 14 ms in 12 s, from 20 to 6 ms"]
    asked = {"time": NEW_YEAR_MS, "producer": "console", "event": "run_requested", "pipeline": "",
             "stage": "", "phase": "", "detail": "{}"}  # fmt: skip
    insert_events(engine, catalogue.LIFECYCLE, *(asked | {"run_id": name} for name in "abcd"))
    insert_events(
        engine,
        catalogue.CONCLUSIONS,
        concluded("a", warm_up={"steady": True, "seconds": 23, "moving": []}),
        concluded("b", warm_up={"steady": False, "seconds": 10, "moving": moving}),
        concluded("c", warm_up={"steady": None, "seconds": 2, "moving": []}),
    )
    rows = engine.rows(
        "SELECT run_id, steady, warm_up_s, moving FROM tidegauge.runs"
        " WHERE run_id IN ('a', 'b', 'c', 'd') ORDER BY run_id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("a", True, 23, []),
        ("b", False, 10, moving),
        ("c", None, 2, []),
        ("d", None, None, []),
    ]


def test_how_far_behind_is_not_known_of_a_pipeline_that_does_not_say(engine):
    def progress(stage, lag_records, **detail):
        return {
            "run_id": "r",
            "time": NEW_YEAR_MS,
            "producer": "p",
            "pipeline": "p",
            "stage": stage,
            "batch_id": 1,
            "input_rows": 1,
            "input_rows_per_second": 1.0,
            "processed_rows_per_second": 1.0,
            "batch_duration_ms": 1,
            "state_rows": 0,
            "state_bytes": 0,
            "watermark": None,
            "lag_records": lag_records,
            "detail": json.dumps(detail),
        }

    said = {"metrics": {"maxOffsetsBehindLatest": "7"}}
    insert_events(
        engine,
        catalogue.PIPELINE,
        progress("a", None, sources=[said, {"metrics": {}}]),
        progress("b", None, sources=[{"metrics": {}}]),
        progress("c", None),
        progress("d", 3),
    )
    rows = engine.rows(
        "SELECT stage, lag_records, max_records_behind FROM tidegauge.pipeline_progress"
        " ORDER BY stage"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("a", None, 7),
        ("b", None, None),
        ("c", None, None),
        ("d", 3, None),
    ]
