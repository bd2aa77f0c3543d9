"""The DDL and the example queries on the embedded engine, with a generated history."""

import json
import re

import pytest

from schemas import catalogue
from services.store.engine import Query
from services.store.engines.schema import DDL_DIR
from tests.benchmarks._results import NEW_YEAR_MS, latency_events, run_events
from tests.integration.store_engine import project

pytestmark = pytest.mark.integration
EXAMPLES = sorted((DDL_DIR / "examples").glob("*.sql"))
SECONDS = 5


@pytest.fixture(scope="module")
def engine(module_engine):
    """An engine with two runs of five seconds, projected as the store does. The last stage only
    publishes in the first second. The first was repeated and compared."""
    events = []
    for number in range(2):
        start_ms = NEW_YEAR_MS + 3_600_000 * number
        events += (
            (topic, record)
            for topic, record in run_events(number, SECONDS, start_ms)
            if topic != catalogue.THROUGHPUT
            or record["stage"] != "sliding"
            or record["second"] == start_ms
        )
        events += latency_events(number, SECONDS, start_ms)
    letter = {"run_id": "", "time": NEW_YEAR_MS, "producer": "store", "topic": "results.latency"}
    why = {"partition": 0, "offset": 1, "reason": "Broken.", "key": None, "value": b"x"}
    events.append((catalogue.DEAD_LETTER, letter | why))
    events += several_runs()
    project(module_engine, events)
    return module_engine


def several_runs():
    """Conclusions about repeated runs and a comparison."""
    where = {"pipeline": "b", "stage": "join", "figure": "p50"}
    bounds = {"low": 1.5, "high": 2.5}
    median = where | bounds | {"definition": "latest", "median": 2, "confidence": 0.94, "count": 5}
    levels = {"before": 2, "after": 4, "unit": "ms", "value": 2, "verdict": "worse"}
    details = {
        "repetition": {"runs": ["2026-000000"], "repetition": {}, "rows": [median]},
        "interleaved": {
            "runs": ["2026-000000"],
            "against": "a",
            "said": "b is slower.",
            "rows": [where | bounds | levels],
        },
    }
    for kind, detail in details.items():
        head = {"run_id": "2026-000000", "time": NEW_YEAR_MS, "producer": "console", "kind": kind}
        told = {"valid": True, "invalid_reasons": [], "detail": json.dumps(detail)}
        yield catalogue.CONCLUSIONS, head | told


def answers(engine, path):
    """Rows of an example, run as the reader."""
    text = engine.answer(Query(path.read_text(), "TSVWithNames")).data.decode()
    names, *rows = (line.split("\t") for line in text.splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows]


def example(engine, name):
    (path,) = (path for path in EXAMPLES if path.stem.partition("_")[2] == name)
    return answers(engine, path)


def test_questions_are_numbered_and_each_is_said_in_its_first_line():
    assert [path.name[:2] for path in EXAMPLES] == [f"{n:02d}" for n in range(1, 28)]
    for path in EXAMPLES:
        first = path.read_text().splitlines()[0]
        assert re.fullmatch(r"-- [A-Z].*[?.]", first), path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_question_has_an_answer(engine, path):
    assert answers(engine, path)


def test_results_of_several_runs_are_rows(engine):
    (row,) = example(engine, "repeated-runs")
    assert (row["stage"], row["figure"], row["median"]) == ("join", "p50", "2")
    assert (row["low"], row["high"], row["valid_runs"]) == ("1.5", "2.5", "5")
    (row,) = example(engine, "compared")
    assert (row["kind"], row["against"], row["pipeline"]) == ("interleaved", "a", "b")
    assert (row["before"], row["after"], row["verdict"]) == ("2", "4", "worse")


def test_runs_are_listed_newest_first(engine):
    rows = example(engine, "runs")
    assert [(row["run_id"], row["valid"]) for row in rows] == [
        ("2026-000001", "true"),
        ("2026-000000", "true"),
    ]


def test_latencies_are_exact(engine):
    row = next(r for r in example(engine, "latency") if r["pipeline"] == "spark-realtime")
    # Series 2 (ingest, event_time) is sorted before 0 (latest): 300 × 20, 90 × 21, 10 × 220 ms.
    assert (row["stage"], row["definition"], row["count"]) == ("ingest", "event_time", "2000")
    assert (row["p50_ms"], row["p95_ms"], row["p99_ms"], row["max_ms"]) == (
        "20",
        "21",
        "220",
        "220",
    )


def test_the_cost_of_a_stage_is_the_difference_to_the_one_before(engine):
    rows = [r for r in example(engine, "stage-cost") if r["pipeline"] == "spark-realtime"]
    assert [(r["stage_before"], r["stage"], r["p50_cost_ms"]) for r in rows] == [
        ("ingest", "parse", "30"),
        ("parse", "join", "30"),
        ("join", "tumbling", "30"),
        ("tumbling", "sliding", "30"),
    ]


def test_shares_within_a_time_are_of_all_outputs(engine):
    row = next(
        r
        for r in example(engine, "within")
        if (r["pipeline"], r["stage"]) == ("spark-realtime", "ingest")
    )
    # 300 outputs at 0 ms, 90 at 1 ms, 10 at 200 ms
    assert (row["within_10_ms"], row["within_1_s"]) == ("0.975", "1")


def test_the_faster_pipeline_is_named_for_each_stage(engine):
    rows = example(engine, "compare-pipelines")
    assert [row["stage"] for row in rows] == ["ingest", "parse", "join", "tumbling", "sliding"]
    assert {row["fastest"] for row in rows} == {"spark-realtime"}


def test_a_run_is_compared_with_the_one_before_of_the_same_workload(engine):
    rows = example(engine, "compare-with-the-run-before")
    assert len(rows) == 10
    assert {(row["run_before"], row["change_ms"]) for row in rows} == {("2026-000000", "0")}


def test_the_ledger_shows_the_one_wrong_output(engine):
    rows = example(engine, "ledger")
    assert {(row["exact"], row["wrong"]) for row in rows} == {("1999", "1")}
    assert len(example(engine, "offenders")) == 10


def test_cost_is_core_seconds_per_million_input_records(engine):
    row = example(engine, "cost")[0]
    # 5 s at half a core for 5 × 400 records: 2.5 / 2000 × 1e6
    assert (row["core_seconds"], row["input_records"]) == ("2.5", "2000")
    assert row["core_seconds_per_million_records"] == "1250"


def test_rates_are_over_all_seconds_of_the_run_also_those_without_a_record(engine):
    rows = {(row["pipeline"], row["stage"]): row for row in example(engine, "throughput")}
    rates = ("mean_records_per_second", "max_records_per_second")
    parse = [rows["spark-realtime", "parse"][name] for name in rates]
    sliding = [rows["spark-realtime", "sliding"][name] for name in rates]
    assert (parse, sliding) == (["400", "400"], ["80", "400"])


def test_it_is_said_how_far_a_query_is_behind(engine):
    row = example(engine, "batches")[0]
    # Reported 0.9 s after the second, with a watermark 2 s before it.
    assert (row["reports"], row["most_watermark_lag_ms"]) == ("5", "2900")
    assert row["most_records_behind"] == "30"


def test_a_pipeline_that_keeps_up_has_nothing_piled_up(engine):
    assert {row["between"] for row in example(engine, "keeping-up")} == {"0"}


def test_every_table_and_column_says_what_it_is(engine):
    nameless = engine.rows(
        "SELECT table, name FROM system.columns WHERE database = 'tidegauge' AND comment = ''"
        " AND table IN (SELECT name FROM system.tables WHERE database = 'tidegauge'"
        " AND engine LIKE '%MergeTree')"
    )
    assert nameless == []
    nameless = engine.rows(
        "SELECT name FROM system.tables WHERE database = 'tidegauge' AND comment = ''"
    )
    assert nameless == []
