"""The view with a row per run, pipeline and stage agrees with the report of a run."""

import json
from typing import Any

import pytest

from schemas import catalogue
from schemas.threshold import LATENCY_FIGURES
from services.readmodel.figures import usage as usage_of
from tests.integration.recorded_run import WARM_UP, phase_ms, recorded, run_of
from tests.integration.store_engine import project, store_in_process
from tests.unit.requests import a_lifecycle_event
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration
EVENTS = recorded()
RUN_ID = run_of(EVENTS)
JUDGED = catalogue.CONCLUSIONS
LEVELS = ("p50_ms", "p99_ms")


@pytest.fixture(scope="module")
def engine(module_engine):
    project(module_engine, EVENTS)
    return module_engine


@pytest.fixture(scope="module")
def figures(engine):
    rows = engine.rows(f"SELECT * FROM tidegauge.figures WHERE run_id = '{RUN_ID}'")
    return {(row["pipeline"], row["stage"]): row for row in rows}


@pytest.fixture(scope="module")
def request_of_the_run():
    return next(
        json.loads(record["detail"])
        for topic, record in EVENTS
        if topic == catalogue.LIFECYCLE and record["event"] == "run_requested"
    )


def test_there_is_a_row_for_each_stage_that_a_pipeline_publishes(figures, request_of_the_run):
    assert set(figures) == {
        (pipeline["name"], stage)
        for pipeline in request_of_the_run["pipelines"]
        for stage in request_of_the_run["stages"]
        if not pipeline["stages"] or stage in pipeline["stages"]
    }


def test_settings_are_columns(figures, request_of_the_run):
    workload, environment = request_of_the_run["workload"], request_of_the_run["environment"]
    for (name, _), row in figures.items():
        (pipeline,) = (one for one in request_of_the_run["pipelines"] if one["name"] == name)
        assert row["workload"] == workload["name"]
        assert row["rate_per_second"] == workload["load"]["rate_per_second"]
        assert row["measure_s"] == workload["phases"]["measure_s"]
        assert (row["warm_up_s"], row["steady"]) == (7, False)
        assert (row["cores"], row["java"]) == (environment["cores"], environment["java"])
        assert row["packages"] == environment["packages"]
        assert (row["mode"], row["topology"]) == (pipeline.get("mode", ""), "chained")
        assert row["settings"]["max_restarts"] == str(pipeline["max_restarts"])
        assert row["partitions"] == 1
        assert row["load_settings"]["shape"] == row["load_shape"] == "constant"
        assert float(row["load_settings"]["rate_per_second"]) == row["rate_per_second"]
        assert (row["content_source"], row["content_settings"]["format"]) == ("ndw", "avro")
        assert (row["transport"], row["workers"]) == ("kafka", None)
        assert (row["faults"], row["kills"]) == ({}, [])


def test_figures_are_those_of_the_other_views(engine, figures):
    (sent,) = engine.rows(
        f"SELECT * FROM tidegauge.generator_summary WHERE run_id = '{RUN_ID}' AND phase = 'measure'"
    )
    for (pipeline, stage), row in figures.items():
        where = (
            f"WHERE run_id = '{RUN_ID}' AND pipeline = '{pipeline}' AND stage = '{stage}'"
            " AND phase = 'measure'"
        )
        (latest,) = engine.rows(
            f"SELECT * FROM tidegauge.latency_summary {where} AND definition = 'latest'"
        )
        names = LATENCY_FIGURES
        assert [row[name] for name in names] == [latest[name] for name in names]
        (verdicts,) = engine.rows(f"SELECT * FROM tidegauge.verdict_totals {where}")
        names = ("exact", "wrong", "missing", "late", "duplicate", "unexpected")
        assert [row[name] for name in names] == [verdicts[name] for name in names]
        (cost,) = engine.rows(
            f"SELECT * FROM tidegauge.stage_cost {where} AND definition = 'latest'"
        )
        names = ("stage_before", "p50_cost_ms", "p99_cost_ms")
        assert [row[name] for name in names] == [cost[name] for name in names]
        assert (row["disturbed"], row["machine_cpu_share"]) == (True, 0.75)
        assert row["moving"] == WARM_UP["moving"]
        names = ("send_delay_p50_ms", "send_delay_p99_ms", "send_delay_max_ms")
        assert [row[name] for name in names] == [sent[name] for name in names]
    assert figures["spark-microbatch", "join"]["stage_before"] == "parse"


def test_what_a_pipeline_used_is_of_the_measured_phase(figures):
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    for (pipeline, _), row in figures.items():
        used = [
            record
            for topic, record in EVENTS
            if topic == catalogue.RESOURCES
            and record["pipeline"] == pipeline
            and start_ms <= record["time"] < end_ms
        ]
        cpu_s = sum(record["cpu_seconds"] for record in used)
        assert row["cpu_cores"] == pytest.approx(cpu_s / sum(r["interval_s"] for r in used))
        per_million = 1e6 * cpu_s / row["input_records"]
        assert row["core_seconds_per_million_records"] == pytest.approx(per_million)
        assert row["measured_for_s"] == pytest.approx((end_ms - start_ms) / 1000)
        for rate, count in (
            ("input_per_second", "input_records"),
            ("outputs_per_second", "measured_outputs"),
        ):
            assert row[rate] == pytest.approx(row[count] / row["measured_for_s"])


def test_the_input_of_a_run_that_ended_early_is_of_the_seconds_in_which_it_was_sent(engine):
    start_ms, _end_ms = phase_ms(EVENTS, "measure")
    kept = [
        (topic, record | {"run_id": "ended"})
        for topic, record in EVENTS
        if record.get("phase") != "cool_down"
        and (topic != catalogue.GENERATOR or record["second"] < start_ms + 4000)
    ]
    project(engine, kept)
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'ended'")
    assert rows
    for row in rows:
        assert row["input_per_second"] == pytest.approx(row["input_records"] / 4)
        assert row["outputs_per_second"] == pytest.approx(row["measured_outputs"] / 4)


def test_missing_samples_make_no_pipeline_cheap(engine):
    events = [(topic, record | {"run_id": "half"}) for topic, record in EVENTS]
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    middle_ms = (start_ms + end_ms) / 2
    kept = [
        (topic, record)
        for topic, record in events
        if topic != catalogue.RESOURCES or not start_ms <= record["time"] < middle_ms
    ]
    project(engine, kept)
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'half'")
    assert rows
    for row in rows:
        used = row["cpu_cores"] * (end_ms - start_ms) / 1000
        assert row["core_seconds_per_million_records"] == pytest.approx(
            1e6 * used / row["input_records"], rel=0.05
        )


@pytest.fixture(scope="module")
def measured(engine):
    """The measured samples of the run `parts`: the recorded events, in which JVMs have a heap in
    two of three samples, and three processes use a half, a third and a sixth of the time."""
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    events, samples = [], []
    for number, (topic, record) in enumerate(EVENTS):
        more: dict[str, Any] = {"run_id": "parts"}
        if topic == catalogue.RESOURCES and record["pipeline"]:
            cpu_s = record["cpu_seconds"]
            parts = {"java A": cpu_s / 2, "python b": cpu_s / 3, "python b 2": cpu_s / 6}
            more["cpu_seconds_by_process"] = parts
            more["received_bytes_by_process"] = {"java A": 3_000.0 + number, "python b": 7.0}
            more["sent_bytes_by_process"] = {"java A": 50.0, "python b": 0.0}
            more["heap_used_bytes"] = (None, 1_000 + number, 9_000 - number)[number % 3]
            if start_ms <= record["time"] < end_ms:
                samples.append(record | more)
        events.append((topic, record | more))
    project(engine, events)
    return samples


def test_a_heap_has_its_lowest_its_highest_and_its_mean_over_time(engine, measured, monkeypatch):
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'parts'")
    store_in_process(engine, monkeypatch)
    usage = {row.pipeline: row for row in usage_of("", "parts", phase_ms(EVENTS, "measure"))}
    assert {row["pipeline"] for row in rows} == set(usage) - {""}
    for row in rows:
        known = [
            (one["heap_used_bytes"], one["interval_s"])
            for one in measured
            if one["pipeline"] == row["pipeline"] and one["heap_used_bytes"] is not None
        ]
        mean = sum(size * s for size, s in known) / sum(s for _size, s in known)
        assert row["heap_min_bytes"] == min(known)[0]
        assert row["heap_bytes"] == max(known)[0]
        assert row["heap_mean_bytes"] == pytest.approx(mean)
        found = usage[row["pipeline"]]
        sizes = (found.heap_used_bytes_min, found.heap_used_bytes_mean, found.heap_used_bytes_max)
        assert sizes == (row["heap_min_bytes"], pytest.approx(mean), row["heap_bytes"])


def test_each_process_of_a_pipeline_has_its_cores(engine, measured, monkeypatch):
    rows = engine.rows("SELECT * FROM tidegauge.pipeline_processes WHERE run_id = 'parts'")
    expected: dict[tuple[str, str], float] = {}
    sampled_s: dict[str, float] = {}
    for one in measured:
        name = one["pipeline"]
        sampled_s[name] = sampled_s.get(name, 0.0) + one["interval_s"]
        for process, cpu_s in one["cpu_seconds_by_process"].items():
            expected[name, process] = expected.get((name, process), 0.0) + cpu_s
    assert {(row["pipeline"], row["process"]) for row in rows} == set(expected)
    for row in rows:
        cpu_s = expected[row["pipeline"], row["process"]]
        assert row["cpu_seconds"] == pytest.approx(cpu_s)
        assert row["cpu_cores"] == pytest.approx(cpu_s / sampled_s[row["pipeline"]])
        for way in ("received", "sent"):
            carried = sum(
                one[f"{way}_bytes_by_process"].get(row["process"], 0.0)
                for one in measured
                if one["pipeline"] == row["pipeline"]
            )
            assert row[f"{way}_bytes"] == pytest.approx(carried)
            assert carried > 0 or row["process"] == "python b 2" or way == "sent"
    store_in_process(engine, monkeypatch)
    for usage in usage_of("", "parts", phase_ms(EVENTS, "measure")):
        of_network = {row["process"]: row for row in rows if row["pipeline"] == usage.pipeline}
        for process, carried in usage.received_bytes_by_process.items():
            assert carried == pytest.approx(of_network[process]["received_bytes"])
        of_pipeline = {p: pytest.approx(s) for (n, p), s in expected.items() if n == usage.pipeline}
        assert usage.cpu_seconds_by_process == of_pipeline
    recorded_run = f"SELECT * FROM tidegauge.pipeline_processes WHERE run_id = '{RUN_ID}'"
    assert engine.rows(recorded_run) == []  # written by a version without it


def test_scheduler_delays_are_those_of_the_tasks_that_ended_in_the_measured_phase(engine):
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    name = next(one["pipeline"] for topic, one in EVENTS if topic == catalogue.PIPELINE)
    events = [(topic, record | {"run_id": "tasks"}) for topic, record in EVENTS]

    def tasks(at_ms, by_delay):
        fields = {"scheduler_delays_ms": [*by_delay], "scheduler_delay_tasks": [*by_delay.values()]}
        head = {"run_id": "tasks", "time": at_ms, "producer": "runner", "pipeline": name}
        of = {"stage": "", "batch_id": -1, "input_rows": 0}
        return catalogue.PIPELINE, head | of | fields

    events += [
        tasks(start_ms - 1, {9_000: 5}),
        tasks(start_ms, {3: 97, 4: 1}),
        tasks(end_ms - 1, {4: 1, 250: 1}),
        tasks(end_ms, {9_000: 5}),
    ]
    project(engine, events)
    row = {"run_id": "tasks", "pipeline": name, "tasks": 100, "p50_ms": 3, "p99_ms": 4}
    row |= {"max_ms": 250, "mean_ms": pytest.approx(5.49)}
    assert engine.rows("SELECT * FROM tidegauge.scheduler_delays WHERE run_id = 'tasks'") == [row]
    of_stages = engine.rows(
        "SELECT DISTINCT scheduler_delay_p50_ms AS p50, scheduler_delay_p99_ms AS p99"
        f" FROM tidegauge.figures WHERE run_id = 'tasks' AND pipeline = '{name}'"
    )
    assert of_stages == [{"p50": 3, "p99": 4}]
    reported = "SELECT count() AS n FROM tidegauge.pipeline_progress WHERE run_id = 'tasks'"
    assert engine.rows(reported) == [
        {"n": sum(topic == catalogue.PIPELINE for topic, _record in EVENTS)}
    ]


def test_the_time_before_a_pipeline_starts_costs_nothing(engine, figures):
    events = [(topic, record | {"run_id": "late"}) for topic, record in EVENTS]
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    used: dict[str, float] = {}
    kept = []
    for topic, record in events:
        if topic == catalogue.RESOURCES and record["pipeline"]:
            if record["time"] < (start_ms + end_ms) / 2:
                continue
            if record["time"] < end_ms:
                name = record["pipeline"]
                used[name] = used.get(name, 0.0) + record["cpu_seconds"]
        kept.append((topic, record))
    project(engine, kept)
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'late'")
    assert len(rows) == len(figures)
    for row in rows:
        per_million = 1e6 * used[row["pipeline"]] / row["input_records"]
        assert row["core_seconds_per_million_records"] == pytest.approx(per_million)


def test_a_run_that_measured_nothing_has_its_settings_alone(engine):
    body = {"workload": {"name": "w"}, "stages": ["join"], "pipelines": [{"name": "p"}]}
    head = {"run_id": "none", "time": NEW_YEAR_MS, "producer": "c", "event": "run_requested"}
    event = head | {"phase": "", "pipeline": "", "stage": "", "detail": json.dumps(body)}
    project(engine, [(catalogue.LIFECYCLE, event)])
    (row,) = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'none'")
    assert (row["workload"], row["pipeline"], row["stage"]) == ("w", "p", "join")
    assert (row["p99_ms"], row["exact"], row["cpu_cores"], row["valid"]) == (None,) * 4
    assert (row["outputs_per_second"], row["cpu_pressure"], row["steal_share"]) == (None,) * 3
    assert (row["beside"], row["window_s"]) == ([], None)


def test_the_load_of_the_machine_is_of_the_measured_phase(engine):
    start_ms, end_ms = phase_ms(EVENTS, "measure")
    events = []
    for topic, record in EVENTS:
        more: dict[str, Any] = {"run_id": "busy"}
        if topic == catalogue.RESOURCES and record["service"] == "machine":
            is_measured = start_ms <= record["time"] < end_ms
            stolen, waited = (0.5, 0.2) if is_measured else (1.0, 1.0)
            more["steal_seconds"] = stolen * record["interval_s"]
            more["cpu_pressure_seconds"] = waited * record["interval_s"]
        events.append((topic, record | more))
    project(engine, events)
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'busy'")
    assert rows
    for row in rows:
        assert row["cpu_pressure"] == pytest.approx(0.2)
        assert row["steal_share"] == pytest.approx(0.5 / row["cores"])


def test_a_stage_has_its_window_and_a_pipeline_the_others(engine):
    stages = [
        {"name": "join", "window": None},
        {"name": "sliding", "window": {"size_s": 300, "slide_s": 60}},
    ]
    body = {
        "workload": {"name": "w"},
        "domain": {"name": "d", "stages": stages},
        "stages": ["join", "sliding"],
        "pipelines": [{"name": name} for name in "pqr"],
    }
    event = a_lifecycle_event("run_requested", json.dumps(body)) | {"run_id": "windows"}
    project(engine, [(catalogue.LIFECYCLE, event)])
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'windows'")
    assert len(rows) == 6
    assert {(row["stage"], row["window_s"]) for row in rows} == {("join", None), ("sliding", 300)}
    assert {row["pipeline"]: row["beside"] for row in rows} == {
        "p": ["q", "r"],
        "q": ["p", "r"],
        "r": ["p", "q"],
    }


def test_settings_that_are_no_defaults_are_columns(engine):
    kills = [{"target": "broker", "at_s": 3, "signal": "pause", "for_s": 5}]
    faults = {"late": 0.1, "late_ms": 500, "duplicate": 0.0}
    workload = {"name": "w", "transport": "udp", "workers": 2, "kills": kills, "faults": faults}
    names = ("workers", "transport", "kills", "faults")
    for run_id, more, workers in (("asked", {}, 2), ("series", {"scaled": {"workers": 4}}, 4)):
        body = {"workload": workload, "stages": ["join"], "pipelines": [{"name": "p"}]} | more
        event = a_lifecycle_event("run_requested", json.dumps(body)) | {"run_id": run_id}
        project(engine, [(catalogue.LIFECYCLE, event)])
        (row,) = engine.rows(f"SELECT * FROM tidegauge.figures WHERE run_id = '{run_id}'")
        assert [row[name] for name in names] == [workers, "udp", kills, {"late": 0.1}]


def test_what_is_known_of_the_run_stands_in_each_of_its_rows(engine):
    found = {"pipeline": "spark-microbatch", "rate_per_second": 900.0}
    room = {"machine": {"cpu_share": 1.0, "saturated": True, "waited": ["broker"]}}
    events = [
        (JUDGED, a_conclusion("sustainable_throughput", found)),
        (JUDGED, a_conclusion("run", {"clean": True, "room": room})),
        (JUDGED, a_conclusion("run", {"clean": True}) | {"run_id": "full-floor"}),
        *((topic, record | {"run_id": "full"}) for topic, record in EVENTS if topic != JUDGED),
        *(
            (topic, record | {"run_id": "full-floor"})
            for topic, record in EVENTS
            if is_copy(record)
        ),
    ]
    project(engine, events)
    rows = engine.rows("SELECT * FROM tidegauge.figures WHERE run_id = 'full'")
    (floor,) = engine.rows("SELECT * FROM tidegauge.run_floor WHERE run_id = 'full'")
    assert len(rows) == 8
    for row in rows:
        assert (row["saturated"], row["waited"]) == (True, ["broker"])
        assert [row[f"floor_{name}"] for name in LEVELS] == [floor[name] for name in LEVELS]
        rate = 900.0 if row["pipeline"] == found["pipeline"] else None
        assert row["sustainable_rate_per_second"] == rate


def a_conclusion(kind, detail):
    """A conclusion on the run `full`."""
    head = {"run_id": "full", "time": NEW_YEAR_MS, "producer": "conductor", "kind": kind}
    return head | {"valid": True, "invalid_reasons": [], "detail": json.dumps(detail)}


def is_copy(record):
    """Whether an event is about the stage that copies its input."""
    return (record.get("pipeline"), record.get("stage")) == ("calibration", "ingest")
