"""What panels and alerts show of certain runs: refused, interleaved, steps of searches, watches."""

import json

import pytest

from deploy.grafana.program.__main__ import ALERTS
from deploy.grafana.program.sql import limits
from schemas import catalogue, protocol
from schemas.events import (
    Concluded,
    Killed,
    PartDown,
    PhaseStarted,
    RunRefused,
    RunRequested,
    WatchBegun,
    WatchTrouble,
)
from schemas.threshold import parse_threshold
from services.runtime.grafana_macros import ALL, TimeRange, expand
from services.store.engine import Query
from tests.integration.dashboard_queries import (
    alert_queries,
    chosen,
    dashboards,
    panel_queries,
    queries,
)
from tests.integration.store_engine import insert_latencies, project
from tests.integration.watched_run import watch_events
from tests.unit.store.test_rows import NEW_YEAR_MS

pytestmark = pytest.mark.integration
DASHBOARDS = {found["uid"].removeprefix("tidegauge-"): found for found in dashboards()}
MEASURED = {"second": NEW_YEAR_MS, "phase": "measure"}
HOUR_MS = 3_600_000
AROUND = TimeRange(NEW_YEAR_MS - HOUR_MS, NEW_YEAR_MS + HOUR_MS)
LATER = TimeRange(NEW_YEAR_MS + 10 * HOUR_MS, NEW_YEAR_MS + 11 * HOUR_MS)


@pytest.fixture
def ask(engine):
    """Rows of a query, run as the reader."""

    def rows(sql):
        return json.loads(engine.answer(Query(sql, "JSON")).data)["data"]

    return rows


def panel(ask, uid, title, when=AROUND, **values):
    """Rows of a panel, with these values of variables."""
    given = chosen(DASHBOARDS[uid], when, ask) | values
    found = panel_queries(DASHBOARDS[uid], when, given)
    (sql,) = (query.sql for query in found if query.name == title)
    return ask(sql)


def alert(ask, title):
    return ask(expand(dict(alert_queries(ALERTS))[title], AROUND, 1, {}))


def happened(event, run, after_ms=0, phase="", **detail):
    head = {"run_id": run, "time": NEW_YEAR_MS + after_ms, "producer": "conductor"}
    what = {"event": event, "phase": phase, "pipeline": "", "stage": ""}
    return catalogue.LIFECYCLE, head | what | {"detail": json.dumps(detail)}


def requested(run, after_ms=0, limit_ms=50.0, **fields):
    workload = {"name": "w", "validity": {"max_send_delay_p99_ms": limit_ms}}
    asked = {"workload": workload, "pipelines": [{"name": "p"}], "stages": ["join"]}
    return happened(RunRequested.name, run, after_ms, **(asked | fields))


def concluded(run, after_ms=1000, clean=True, **detail):
    """Both events of the conclusion of a valid run."""
    yield happened(Concluded.name, run, after_ms, valid=True, clean=clean)
    head = {"run_id": run, "time": NEW_YEAR_MS + after_ms, "producer": "conductor", "kind": "run"}
    told = json.dumps({"clean": clean} | detail)
    yield catalogue.CONCLUSIONS, head | {"valid": True, "invalid_reasons": [], "detail": told}


def event(bus_topic, run, **fields):
    return bus_topic, {"run_id": run, "time": NEW_YEAR_MS, "producer": "tests"} | fields


def sent(run, delay_ms):
    counts = {"intended": 1, "sent": 1, "acknowledged": 1, "failed": 0}
    delays = {"send_delays_us": [1000 * delay_ms], "counts": [1]}
    return event(catalogue.GENERATOR, run, **MEASURED, **counts, **delays)


def judged(run, pipeline):
    counts = dict.fromkeys(protocol.VERDICTS, 1)
    return event(
        catalogue.VERDICTS, run, pipeline=pipeline, stage="join", samples=[], **MEASURED, **counts
    )


def test_alerts_leave_out_the_steps_of_a_search(ask, engine):
    project(
        engine,
        [
            requested("r"),
            requested("r-1", step_of="r"),
            requested("r-floor", step_of="r"),
            *(judged(run, run) for run in ("r", "r-1", "r-floor")),
            *(sent(run, 80) for run in ("r", "r-1", "r-floor")),
        ],
    )
    found = alert(ask, "The ledger is not clean")
    assert [(row["pipeline"], row["outputs"]) for row in found] == [("r", 5)]
    assert [row["run_id"] for row in alert(ask, "The generator sends late")] == ["r"]


LIMIT = {"threshold": "join.p99_ms <= 5", "pipeline": "p", "stage": "join", "limit": 5}


def test_an_alert_names_each_threshold_that_failed_in_no_step(ask, engine):
    rows = [LIMIT | {"passed": False, "value": 7.5}, LIMIT | {"stage": "parse", "passed": True}]
    project(engine, [requested("r"), requested("r-1", step_of="r")])
    for run in ("r", "r-1"):
        project(engine, concluded(run, 0, thresholds=rows))
    found = alert(ask, "A threshold failed")
    assert sorted((row["stage"], row["threshold"], row["runs"]) for row in found) == [
        ("join", "join.p99_ms <= 5", 1),
        ("parse", "join.p99_ms <= 5", 0),
    ]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ([], 5),
        (["p99_ms <= 5", "input.records >= 1"], 5),
        (["missing<=0  # none late == 0", "w: output.duplicate <= 7"], 3),
        (["*.not_exact <= 9"], None),
    ],
)
def test_verdicts_that_a_watch_limits_are_left_to_its_thresholds(ask, engine, lines, outputs):
    begun = {"watch": {"thresholds": lines}, "workload": {"name": "w"}, "stages": ["join"]}
    project(engine, [happened(WatchBegun.name, "w-1", **begun), judged("w-1", "w")])
    found = alert(ask, "The ledger is not clean")
    assert [row["outputs"] for row in found] == ([] if outputs is None else [outputs])


def test_an_alert_names_the_problems_of_watches(ask, engine):
    events = (
        {"kind": "topic_deleted", "topic": "t", "invalid": "The topic t was deleted."},
        {"kind": "undecodable", "topic": "t", "invalid": "", "reason": "no schema"},
        {"kind": "undecodable", "topic": "t", "reason": "no schema"},
        {"kind": "sampled", "invalid": "", "share": 0.5},
        {"kind": "ended", "invalid": ""},
    )
    project(engine, [happened(WatchTrouble.name, "", watch="w", **one) for one in events])
    found = alert(ask, "A watch has a problem")
    assert {(row["what"], row["topic"]): row["problems"] for row in found if row["problems"]} == {
        ("topic_deleted", "t"): 1,
        ("undecodable", "t"): 2,
        ("ended", ""): 1,
    }


def test_faults_on_purpose_are_no_problems(ask, engine):
    kill = {"workload": {"name": "w", "kills": [{"target": "driver", "at_s": 15}]}}
    faulty = {"pipelines": [{"name": "faulty", "drop_one_in": 100}]}
    fine = {"pipelines": [{"name": "fine", "drop_one_in": 0}]}
    requests = {"killed": kill, "planted": faulty, "other": fine}
    for run, request in requests.items():
        project(engine, [requested(run, **request), *concluded(run, clean=False)])
    project(engine, [judged("killed", "p"), judged("planted", "faulty"), judged("other", "fine")])
    (found,) = alert(ask, "The ledger is not clean")
    assert (found["pipeline"], found["outputs"]) == ("fine", 5)
    (shown,) = panel(ask, "live", "Outputs that were not exact", pipelines=ALL)
    assert shown == dict.fromkeys(protocol.VERDICTS[1:], 1)
    (counted,) = panel(ask, "overview", "Number of problems")
    assert counted["runs not exact"] == 1
    assert [row["run"] for row in panel(ask, "overview", "Problems")] == ["other"]
    assert panel(ask, "correctness", "Share of exact outputs", pipelines=["p", "faulty"]) == []
    (share,) = panel(ask, "correctness", "Share of exact outputs", pipelines=ALL)
    assert share["exact"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("lines", "counts", "refused", "is_exact"),
    [
        ([], {"missing": 3}, 0, False),
        (["missing <= 5"], {"missing": 3}, 0, True),
        (["missing <= 5  # none"], {"missing": 3, "late": 1}, 0, False),
        (["w: *.not_exact<=5"], {"missing": 3, "late": 1}, 0, True),
        (["missing <= 5"], {"missing": 3}, 1, False),
        (["missing <= 5"], {"missing": 3, "exact": 0}, 0, False),
    ],
)
def test_verdicts_that_a_watch_limits_are_no_problem(ask, engine, lines, counts, refused, is_exact):
    verdicts = dict.fromkeys(protocol.VERDICTS, 0) | {"exact": 9} | counts
    detail = {
        "verdicts": {"w": {"output": verdicts}},
        "watch": {"refused": refused},
        "thresholds": [LIMIT | {"threshold": line, "passed": True} for line in lines],
    }
    run = "watch-w-1"
    begun = {"workload": {"name": "w"}, "pipelines": [{"name": "w"}]}
    project(engine, [happened(WatchBegun.name, run, **begun)])
    project(engine, concluded(run, clean=False, **detail))
    (counted,) = panel(ask, "overview", "Number of problems")
    assert counted["runs not exact"] == (0 if is_exact else 1)
    shown = [row["run"] for row in panel(ask, "overview", "Problems")]
    assert shown == ([] if is_exact else [run])


def test_a_part_that_a_workload_killed_did_not_die(ask, engine):
    def died(part, after_ms):
        return happened(PartDown.name, "", after_ms, part=part, reason=f"{after_ms}")

    project(
        engine,
        [
            requested("r"),
            died("kafka", 9_000),
            happened(Killed.name, "r", 10_000, target="broker", pids=[1]),
            died("kafka", 10_100),
            died("evaluator", 10_200),
            died("kafka", 69_999),
            died("kafka", 70_000),
            *concluded("r", 80_000),
        ],
    )
    found = panel(ask, "overview", "Problems")
    assert [(row["what"], row["why"]) for row in found] == [
        ("kafka died", "70000"),
        ("evaluator died", "10200"),
        ("kafka died", "9000"),
    ]
    (counted,) = panel(ask, "overview", "Number of problems")
    assert counted["processes died"] == 3


def test_a_generator_is_late_by_the_limit_of_its_own_workload(ask, engine):
    limits_ms = {"tight": 50.0, "wide": 500.0}
    project(engine, (requested(run, limit_ms=limit_ms) for run, limit_ms in limits_ms.items()))
    project(engine, (sent(run, 80) for run in limits_ms))
    found = alert(ask, "The generator sends late")
    shares = {row["run_id"]: row["share_of_limit"] for row in found}
    assert shares == pytest.approx({"tight": 1.6, "wide": 0.16})


def test_a_cost_per_record_is_not_of_the_input_of_other_pipelines(ask, engine):
    turns = {"block_s": 5, "order": ["p", "q"]}
    for run, interleaved in (("r", None), ("turns", turns)):
        amounts = {"cpu_seconds": 2.0, "interval_s": 5.0, "memory_bytes": 1}
        amounts |= {"processes": 1, "threads": 1}
        counts = {"pipeline": "", "stage": "", "records": 1_000_000, "bytes": 1}
        project(
            engine,
            [
                requested(run, interleaved=interleaved),
                *concluded(run),
                event(catalogue.RESOURCES, run, service="s", pipeline=run, **amounts),
                event(catalogue.THROUGHPUT, run, topic="t", second=NEW_YEAR_MS, **counts),
            ],
        )
        insert_latencies(engine, run, join={1: 1})
    title = "Core-seconds per million input records, by run"
    found = panel(ask, "history", title, workload="w", pipelines=ALL, stage="join")
    assert [(row["series"], row["core_seconds"]) for row in found] == [("r", 2)]


def test_a_refused_run_did_not_take_place_and_is_in_no_later_time(ask, engine):
    project(
        engine,
        [
            happened(RunRefused.name, "refused", reason="No such pipeline."),
            requested("open"),
            happened(PhaseStarted.name, "open", phase="measure"),
            requested("next"),
        ],
    )
    title = "Current and recent runs"
    states = {row["run"]: row["state"] for row in panel(ask, "live", title)}
    assert states == {
        "refused": "did not take place",
        "open": "in measure",
        "next": "requested",
    }
    title = "All runs in this time range"
    assert {row["run"] for row in panel(ask, "run", title)} == {"refused", "open", "next"}
    assert {row["run"] for row in panel(ask, "run", title, LATER)} == {"open", "next"}
    (sql,) = (
        query.sql
        for query in queries(DASHBOARDS["run"], AROUND, ask)
        if (query.kind, query.name) == ("variable", "run")
    )
    assert {row["run_id"] for row in ask(sql)} == {"open", "next"}


def test_the_newest_run_of_one_stage_is_an_earlier_one_of_another(ask, engine):
    measurements = ({"join": {2: 1}}, {"join": {2: 1}, "parse": {2: 1}}, {"join": {4: 1}})
    for number, stages in enumerate(measurements):
        run = f"r{number}"
        project(engine, [requested(run, number * 1000), *concluded(run, number * 1000 + 500)])
        insert_latencies(engine, run, **stages)
    title = "Newest run of every workload, compared with earlier runs"
    found = {row["stage"]: row for row in panel(ask, "overview", title)}
    assert (found["join"]["run"], found["join"]["runs before"]) == ("r2", 2)
    assert found["join"]["p50 ratio"] == 2
    assert (found["parse"]["run"], found["parse"]["runs before"]) == ("r1", 0)


def test_a_pipeline_beside_another_has_a_history_of_its_own(ask, engine):
    both = {"pipelines": [{"name": "p"}, {"name": "q"}]}
    for number, (fields, latency_ms) in enumerate((({}, 2), (both, 8), ({}, 4), (both, 8))):
        run = f"r{number}"
        events = [requested(run, number * 1000, **fields), *concluded(run, number * 1000 + 500)]
        project(engine, events)
        insert_latencies(engine, run, join={latency_ms: 1})
    title = "Newest run of every workload, compared with earlier runs"
    found = {row["beside"]: row for row in panel(ask, "overview", title)}
    assert {beside: (row["run"], row["p50 ratio"]) for beside, row in found.items()} == {
        "": ("r2", 2),
        "q": ("r3", 1),
    }
    about = {"workload": "w", "pipelines": ALL, "stage": "join", "definition": "latest"}
    found = panel(ask, "history", "Latency p99 of $stage, by run", **about)
    assert [(row["series"], row["latency_ms"]) for row in found] == [
        ("p", 2),
        ("p beside q", 8),
        ("p", 4),
        ("p beside q", 8),
    ]


def test_a_limit_of_one_pipeline_is_drawn_beside_another(ask, engine):
    both = {"pipelines": [{"name": name} for name in "qp"]}
    limits = {"workload": {"name": "w", "thresholds": ["p: join.p99_ms <= 9"]}}
    project(engine, [requested("r", **both, **limits), *concluded("r")])
    project(engine, [took("r", 2, pipeline="p"), took("r", 3, pipeline="q")])
    about = {"workload": "w", "pipelines": ALL, "stage": "join", "definition": "latest"}
    found = panel(ask, "history", "Latency p99 of $stage, by run", **about)
    assert {row["series"]: row["latency_ms"] for row in found} == {
        "p beside q": 2,
        "q beside p": 3,
        "limit p beside q": 9,
    }


def test_a_figure_that_was_not_measured_is_no_zero_among_the_problems(ask, engine):
    rows = [LIMIT | {"passed": False, "value": value} for value in (None, 7.5)]
    project(engine, [requested("r"), *concluded("r", thresholds=rows)])
    assert sorted(row["why"] for row in panel(ask, "overview", "Problems")) == [
        "join.p99_ms <= 5: p join has 7.5",
        "join.p99_ms <= 5: p join has no such figure",
    ]


def test_the_thresholds_of_a_run_are_listed_with_their_figures(ask, engine):
    rows = [LIMIT | {"passed": True, "value": 4}, LIMIT | {"stage": "parse", "passed": False}]
    project(engine, [requested("r"), *concluded("r", thresholds=rows)])
    found = panel(ask, "run", "Thresholds", run="r")
    assert [(row["stage"], row["value"], row["result"]) for row in found] == [
        ("parse", None, "FAILED"),
        ("join", 4, "passed"),
    ]


def test_the_history_of_a_threshold_counts_its_failures(ask, engine):
    """Limits from baselines differ between runs, but their factor does not. The last run was ended
    by its threshold."""
    for number, (baseline, value) in enumerate(((10, 9), (20, 33))):
        run, after_ms = f"r{number}", 10_000 * number
        limit = {"limit": 1.5 * baseline, "value": value, "passed": value <= 1.5 * baseline}
        text = f"join.p99_ms <= {1.5 * baseline:g}  # 1.5 * baseline ({baseline} in x.json)"
        rows = [LIMIT | {"value": 4, "passed": True}, LIMIT | limit | {"threshold": text}]
        _, (topic, judged_run) = concluded(run, after_ms + 1000, thresholds=rows)
        ended = topic, judged_run | {"valid": number == 0}
        project(engine, [requested(run, after_ms), ended])
    found = panel(ask, "history", "Thresholds")
    assert [(row["limited"], row["runs"], row["failed"]) for row in found] == [
        ("join.p99_ms <= 1.5 * baseline", 2, 1),
        ("join.p99_ms <= 5", 2, 0),
    ]
    assert (found[0]["newest value"], found[0]["newest limit"]) == (33, 30)
    rows = [LIMIT | {"value": None, "passed": False}]  # the newest run has no such figure
    project(engine, [requested("r2", 20_000), *concluded("r2", 21_000, thresholds=rows)])
    (row,) = (one for one in panel(ask, "history", "Thresholds") if one["runs"] == 3)
    assert (row["limited"], row["newest value"], row["failed"]) == ("join.p99_ms <= 5", None, 1)


def test_the_link_to_a_long_run_ends_after_the_run(ask, engine):
    project(engine, [requested("r"), *concluded("r", HOUR_MS)])
    insert_latencies(engine, "r", join={2: 1})
    title = "Newest run of every workload, compared with earlier runs"
    (row,) = panel(ask, "overview", title, LATER)
    assert row["from_ms"] == NEW_YEAR_MS
    assert row["to_ms"] == NEW_YEAR_MS + HOUR_MS + 5000


@pytest.mark.parametrize(
    ("definition", "limits_ms"), [("latest", {50.0}), ("mean", {60.0}), ("event_time", {900.0})]
)
def test_a_limit_is_drawn_on_the_latency_that_it_limits(ask, engine, definition, limits_ms):
    lines = ("join.p99_ms <= 50", "join.mean.p99_ms <= 60", "join.event_time.p99_ms <= 900")
    others = ("join.p999_ms <= 7", "join.p99_ms >= 1", "q: *.p99_ms <= 3", "parse.p99_ms <= 4")
    project(engine, [limited("r", *lines, *others), took("r", 2, definition)])
    for uid, title in (("run", "Latency p99 by stage over time"), ("live", "Latency p99 by stage")):
        found = panel(ask, uid, title, run="r", pipelines=ALL, definition=definition)
        assert {row["latency_ms"] for row in found if row["series"] == "limit w join"} == limits_ms
        assert {row["series"] for row in found} == {"p join", "limit w join"}


def test_latencies_of_a_run_are_by_minute_once_those_by_second_have_expired(ask, engine):
    found = []
    for has_expired in (False, True):
        if has_expired:
            engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
        else:
            project(engine, [requested("r"), took("r", 2, after_ms=1000), took("r", 4)])
        for title in ("Latency p99 by stage over time", "Latency heatmap"):
            found.append(panel(ask, "run", title, run="r", definition="latest"))
    by_second, heat, by_minute, rough_heat = found
    assert max(row["latency_ms"] for row in by_second) == 4
    assert [(row["series"], row["latency_ms"]) for row in by_minute] == [("p join", 4)]
    assert sum(map(outputs_of, heat)) == sum(map(outputs_of, rough_heat)) == 4


def outputs_of(row):
    """The outputs in all bands of a point of a heatmap."""
    return sum(int(value) for name, value in row.items() if name != "time")


@pytest.mark.parametrize("others", ["concluded", "refused", "never concluded"])
def test_the_age_of_data_is_of_a_watch_that_is_still_running(ask, engine, others):
    begun = {"workload": {"name": "w"}, "pipelines": [{"name": "w"}]}
    project(engine, [happened(WatchBegun.name, "watch-w-1", **begun), took("watch-w-1", 2)])
    for number in range(25):
        run, after_ms = f"r{number}", 1000 * number
        if others == "never concluded":
            project(engine, [requested(run, after_ms - 60_000)])
        if others == "concluded":
            project(engine, [requested(run, after_ms + 500), *concluded(run, after_ms + 900)])
        if others == "refused":
            project(engine, [happened(RunRefused.name, run, after_ms, reason="No.")])
    assert len(panel(ask, "overview", "Data age")) == 1


def limited(run, *lines, workload="w", after_ms=0):
    """A run that is going on, with these thresholds."""
    return requested(run, after_ms, workload={"name": workload, "thresholds": lines})


def took(run, latency_ms, definition="latest", *, after_ms=0, phase="measure", pipeline="p"):
    """Two outputs of the join in one second."""
    counts = {"latencies_ms": [latency_ms], "counts": [2]}
    place = {"pipeline": pipeline, "stage": "join", "definition": definition, "phase": phase}
    return event(catalogue.LATENCY, run, second=NEW_YEAR_MS + after_ms, **place, **counts)


def test_a_limit_is_drawn_while_its_own_run_is_measured(ask, engine):
    project(
        engine,
        [
            limited("a", "join.p99_ms <= 50"),
            took("a", 400, phase="warm_up"),
            took("a", 20, after_ms=60_000),
            limited("b", "*.p99_ms <= 9 abort  # tight", workload="tight", after_ms=120_000),
            took("b", 8, after_ms=180_000),
            limited("c", workload="unlimited", after_ms=240_000),
            took("c", 7, after_ms=300_000),
        ],
    )
    found = panel(ask, "live", "Latency p99 by stage", pipelines=ALL, definition="latest")
    at = sorted({row["time"] for row in found})
    assert len(at) == 4
    points = {(at.index(row["time"]), row["series"]): row["latency_ms"] for row in found}
    assert points == {
        **{(0, "p join"): 400, (1, "p join"): 20, (2, "p join"): 8, (3, "p join"): 7},
        **{(1, "limit w join"): 50, (2, "limit tight all stages"): 9},
    }


def test_each_run_of_a_history_has_its_own_limit(ask, engine):
    for number, lines in enumerate((("join.p99_ms<= 22.5  # 1.1 * baseline (20 in x)",), (),
                                    ("*.p99_ms < 30", "p: join.p99_ms <= 25"))):  # fmt: skip
        run, after_ms = f"r{number}", 60_000 * number
        project(engine, [limited(run, *lines, after_ms=after_ms), *concluded(run, after_ms + 9)])
        project(engine, [took(run, 20 + number, after_ms=after_ms + 5, pipeline="p")])
        project(engine, [took(run, 21, "mean", after_ms=after_ms + 5)])
    about = {"workload": "w", "pipelines": ALL, "stage": "join"}
    title = "Latency p99 of $stage, by run"
    found = panel(ask, "history", title, definition="latest", **about)
    assert [(row["series"], row["latency_ms"]) for row in found] == [
        ("p", 20),
        ("limit p", 22.5),
        ("p", 21),
        ("p", 22),
        ("limit p", 25),
    ]
    found = panel(ask, "history", title, definition="mean", **about)
    assert {row["series"] for row in found} == {"p"}


LINES = (
    "join.p99_ms <= 50",
    "  a-b2 :  join.event_time.p99_ms<0.5  abort # x <= 3",
    "*.p99_ms <= -1",
    "tumbling_60.mean.p99_ms < 1000",
    "join.p99_ms >= 50",
    "join.p99_ms == 50",
    "join.p95_ms <= 50",
    "join.p999_ms <= 50",
    "join.p99_ms <= 1.1 * baseline",
    "join.p99_ms <= baseline",
    "join.missing == 0 # p99_ms <= 5",
    "pipeline.cpu_cores <= 1.5",
)


def test_dashboards_read_thresholds_as_runs_do(ask, engine):
    parsed = [parse_threshold(line) for line in LINES]
    expected = [
        (one.pipeline, one.subject, one.definition, one.value)
        for one in parsed
        if one.figure == "p99_ms" and one.operator in ("<", "<=") and not one.of_baseline
    ]
    assert len(expected) == 4
    project(engine, [limited("r", *LINES)])
    names = ("of_pipeline", "of_stage", "of_definition", "limit_ms")
    found = ask(f"SELECT {', '.join(names)} FROM {limits(0.99, repr('r'))}")
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)


@pytest.mark.parametrize("title", ["Events", "Records per second", "Consumer group lag", "Runs"])
def test_panels_show_the_watches_that_were_chosen(ask, engine, title):
    project(engine, watch_events(NEW_YEAR_MS))
    for pipelines in (ALL, ["orders"]):
        assert panel(ask, "watch", title, pipelines=pipelines)
    assert panel(ask, "watch", title, pipelines=["another"]) == []


def test_the_limit_of_a_watch_is_drawn(ask, engine):
    project(engine, watch_events(NEW_YEAR_MS))
    found = panel(ask, "watch", "Latency p99", pipelines=["orders"])
    assert {row["series"] for row in found} == {"orders output", "limit orders all stages"}
    limits = {row["latency_ms"] for row in found if row["series"].startswith("limit ")}
    assert limits == {100.0}
    (median,) = {row["series"] for row in panel(ask, "watch", "Latency p50", pipelines=["orders"])}
    assert median == "orders output"


@pytest.mark.parametrize(("until", "most_ms"), [("latest", 250), ("visible", 700)])
def test_the_latency_of_a_watch_is_of_one_definition(ask, engine, until, most_ms):
    project(engine, watch_events(NEW_YEAR_MS))
    found = panel(ask, "watch", "Latency p99", pipelines=["orders"], until=until)
    rows = [row for row in found if not row["series"].startswith("limit ")]
    assert {(row["series"], row["latency_ms"]) for row in rows} == {("orders output", most_ms)}


def test_the_aborted_records_of_a_watch_are_of_its_output_topic(ask, engine):
    project(engine, watch_events(NEW_YEAR_MS))
    found = panel(ask, "watch", "Aborted records per second", pipelines=["orders"])
    assert {row["series"] for row in found} == {"shipped"}
