"""Every query of every dashboard and alert on the real engine, with a recorded run."""

import json
import re

import pytest

from deploy.grafana.program.__main__ import ALERTS
from deploy.grafana.program.overview import ENDED
from services.conductor import cancellation, orphaned_runs
from services.runtime.grafana_macros import TimeRange, expand
from services.store.engine import Query
from tests.integration.dashboard_queries import (
    alert_queries,
    chosen,
    dashboards,
    panel_queries,
    queries,
)
from tests.integration.recorded_run import (
    an_input_of_another_load,
    conclusions,
    lost_frames,
    phase_ms,
    recorded,
    run_of,
    troubles,
    with_processes,
)
from tests.integration.store_engine import project
from tests.integration.watched_run import watch_events

pytestmark = pytest.mark.integration
DASHBOARDS = dashboards()
NAMES = [dashboard["title"] for dashboard in DASHBOARDS]
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def events():
    return with_processes(recorded())


@pytest.fixture(scope="module")
def engine(events, module_engine):
    """An engine that contains the recorded run with some faults in its middle."""
    start_ms, end_ms = phase_ms(events, "measure")
    run_id, middle_ms = run_of(events), (start_ms + end_ms) // 2
    trouble = [*troubles(run_id, middle_ms), *conclusions(run_id, middle_ms)]
    trouble += lost_frames(run_id, middle_ms)
    watched = watch_events(middle_ms)
    project(module_engine, [*events, *trouble, *watched, an_input_of_another_load(middle_ms)])
    return module_engine


@pytest.fixture(scope="module")
def ask(engine):
    """Rows of a query, run as the reader."""

    def rows(sql):
        return json.loads(engine.answer(Query(sql, "JSON")).data)["data"]

    return rows


@pytest.fixture(scope="module")
def ranges(events):
    """Part of the measure phase, the run and its surroundings, and a week."""
    start_ms, end_ms = phase_ms(events, "measure")
    return {
        "seconds": TimeRange(start_ms + 2000, end_ms - 2000),
        "an hour": TimeRange(end_ms - 3_000_000, end_ms + 600_000),
        "a week": TimeRange(end_ms - 6 * DAY_MS, end_ms + DAY_MS),
    }


@pytest.mark.parametrize("span", ["seconds", "an hour", "a week"])
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_every_query_of_a_dashboard_has_an_answer(dashboard, span, ranges, ask):
    empty = [
        (query.kind, query.name)
        for query in queries(dashboard, ranges[span], ask)
        if not ask(query.sql)
    ]
    # The run was requested before its measure phase: deployments and changes are shown there.
    before = [("annotation", "Deployments"), ("annotation", "Change points")]
    if span == "seconds":
        assert empty == before
    elif span == "a week" and dashboard["title"] not in ("Run", "Watch"):
        assert empty == [("annotation", "Run phases")]  # they would cover everything
    else:
        assert empty == []


WHOLE = "spark-microbatch"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_one_value_chosen_instead_of_all_has_an_answer(dashboard, ranges, ask):
    when = ranges["an hour"]
    values = chosen(dashboard, when, ask)
    for variable in dashboard["templating"]["list"]:
        if variable.get("includeAll"):
            found = ask(expand(variable["query"]["rawSql"], when, 1, values))
            options = [str(next(iter(row.values()))) for row in found]
            # The other pipeline of the recorded run does not publish every stage.
            values[variable["name"]] = [one for one in options if one == WHOLE] or options[:1]
    empty = [query.name for query in panel_queries(dashboard, when, values) if not ask(query.sql)]
    assert empty == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_a_time_of_which_nothing_is_known_fails_no_query(dashboard, ask):
    for query in queries(dashboard, TimeRange(0, 3_600_000), ask):
        rows = ask(query.sql)
        assert rows or query.said_when_empty or query.kind in ("variable", "annotation")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_answers_have_the_form_that_their_panel_shows(dashboard, ranges, ask):
    for query in queries(dashboard, ranges["an hour"], ask):
        columns = list(ask(query.sql)[0])
        if query.kind in ("timeseries", "heatmap"):
            assert columns[0] == "time", query.name
            assert "series" not in columns[2:], query.name
            assert "series" not in columns or len(columns) == 3, query.name
        if query.kind == "annotation":
            assert {"time", "text", "tags"} <= set(columns)
        if query.kind == "stat":
            assert len(ask(query.sql)) == 1, query.name
        if query.kind == "barchart":
            assert len(columns) > 1, query.name


def test_every_output_is_in_the_heatmap(ranges, ask):
    (stages,) = (each for each in DASHBOARDS if each["uid"] == "tidegauge-stages")
    found = {query.name: query.sql for query in queries(stages, ranges["an hour"], ask)}
    heat = ask(found["Latency heatmap of $stage"])
    shown = chosen(stages, ranges["an hour"], ask)["stage"]
    (row,) = (r for r in ask(found["Latency of every stage"]) if r["stage"] == shown)
    assert sum(int(value) for r in heat for name, value in r.items() if name != "time") == int(
        row["outputs"]
    )


@pytest.mark.parametrize("rule", list(alert_queries(ALERTS)), ids=lambda rule: rule[0])
def test_an_alert_answers_labels_and_one_number(rule, ranges, ask):
    _title, sql = rule
    rows = ask(expand(sql, ranges["an hour"], 1, {}))
    assert rows
    for row in rows:
        numbers = [value for value in row.values() if not isinstance(value, str)]
        assert len(numbers) == 1


def test_the_alert_of_the_ledger_names_what_was_wrong(ranges, ask):
    sql = dict(alert_queries(ALERTS))["The ledger is not clean"]
    rows = ask(expand(sql, ranges["an hour"], 1, {}))
    failed = [(row["pipeline"], row["stage"], row["outputs"]) for row in rows if row["outputs"]]
    # 51 outputs of the recorded run were late; the others are from `troubles` and the watch, which
    # limits the missing ones.
    assert sorted(failed) == [
        ("orders", "output", 3),
        ("spark-microbatch", "parse", 1),
        ("spark-microbatch", "sliding", 51),
    ]


def test_the_alert_of_change_points_is_about_those_for_the_worse(ranges, ask):
    sql = dict(alert_queries(ALERTS))["A figure got worse"]
    place = {"workload": "latency", "pipeline": "spark-microbatch", "stage": "join"}
    found = ask(expand(sql, ranges["an hour"], 1, {}))
    assert found == [place | {"metric": "p99_ms", "change_points": 1}]


def test_latency_is_held_against_the_baseline_where_it_was_measured(ranges, ask):
    (live,) = (each for each in DASHBOARDS if each["uid"] == "tidegauge-live")
    found = {query.name: query.sql for query in queries(live, ranges["an hour"], ask)}
    shown = ask(found["Latency against the baseline"])
    measured = ask(
        "SELECT pipeline, stage, sum(m.count) AS outputs FROM latency_minutes AS m"
        " WHERE definition = 'latest' AND phase = 'measure' GROUP BY pipeline, stage"
    )
    key = ("pipeline", "stage", "outputs")
    assert sorted([row[name] for name in key] for row in shown) == sorted(
        [row[name] for name in key] for row in measured
    )


def test_a_macro_is_left_nowhere(ranges, ask):
    for dashboard in DASHBOARDS:
        for query in queries(dashboard, ranges["an hour"], ask):
            assert not re.search(r"\$\w|\$\{", query.sql), query.name


@pytest.mark.parametrize(
    ("reason", "is_ended"),
    [
        (cancellation.STOPPED, True),
        (f"{cancellation.GAVE_WAY} r2.", True),
        (f"{cancellation.CANCELLED} cancelled.", True),
        ("The run was ended by a threshold: join.p99_ms <= 50.", False),
        (orphaned_runs.KILLED, False),
        ("The generator was late: p99 80 ms.", False),
    ],
)
def test_only_runs_that_a_user_ended_need_no_attention(ask, reason, is_ended):
    assert cancellation.was_asked_for([reason]) == is_ended
    (row,) = ask(f"SELECT {ENDED} AS ended FROM (SELECT ['{reason}', 'More.'] AS invalid_reasons)")
    assert bool(row["ended"]) == is_ended
