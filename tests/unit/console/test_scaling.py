"""Series of runs with increasing numbers of workers: their composition and their report."""

from io import StringIO

import pytest
from rich.console import Console

from schemas.load import Constant
from schemas.protocol import RunPlan, RunRequest, Workload
from schemas.search import Scaled, Scaling, Search
from schemas.validation_errors import DefinitionError
from services.console.choosing import parts_of, scaling_of
from services.console.listing import explained
from services.console.report import html, terminal
from services.console.report.several import SeriesRun, judged
from services.console.report.tables import scaling_header, scaling_rows
from services.definitions.domains import load_domain
from services.definitions.pipelines import load_pipeline
from services.definitions.requests import new_request
from services.definitions.workloads import load_suite, load_workload
from services.runner.session import engine_plan
from services.runtime.settings import ServiceSettings
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

TRAFFIC = load_domain("traffic").spec
ENDS = ("w1-p2", "w4-p8")
WORKLOAD = Workload(
    name="w",
    summary="-",
    load=Constant(rate_per_second=4000),
    search=Search(),
    scaling=Scaling(workers=(1, 4), partitions_per_worker=2),
)


def parts(*names, workload=WORKLOAD):
    return parts_of(workload, tuple(load_pipeline(name) for name in names))


def test_each_number_of_workers_is_a_pipeline_and_topics_of_its_own():
    one, four = parts("kafka-streams")
    assert [one.pipelines[0].name, four.pipelines[0].name] == [
        "kafka-streams-w1-p2",
        "kafka-streams-w4-p8",
    ]
    assert (one.pipelines[0].settings["threads"], four.pipelines[0].settings["threads"]) == (1, 4)
    assert four.scaled == Scaled(series="", pipeline="kafka-streams", workers=4, partitions=8)
    assert (four.workload.partitions, four.workload.scaling) == (8, None)
    request = new_request(four.workload, four.pipelines, ("parse",), TRAFFIC)
    topics = ("traffic.flow.8-partitions", "traffic.speed.8-partitions")
    assert request.input_topics == topics
    plan = RunPlan(request=request, start_offsets=dict.fromkeys(topics, (0,) * 8))
    told = engine_plan(plan, request.pipelines[0], "folder", ServiceSettings(), "127.0.0.1:9092")
    assert told.domain.topics == topics
    assert told.outputs == {"parse": "output.kafka-streams-w4-p8.parse"}
    again = RunRequest.model_validate_json(request.model_dump_json())
    assert again.shares == request.shares


def test_a_threshold_of_the_pipeline_applies_to_each_number_of_workers():
    lines = (
        "kafka-streams: pipeline.sustainable_rate_per_second >= 9",
        "kafka-streams-w4-p8: join.p99_ms <= 50",
        "*.missing == 0",
    )
    found = parts("kafka-streams", workload=WORKLOAD.model_copy(update={"thresholds": lines}))
    own = [f"kafka-streams-{end}{lines[0].removeprefix('kafka-streams')}" for end in ENDS]
    assert [part.workload.thresholds for part in found] == [
        (own[0], lines[2]),
        (own[1], *lines[1:]),
    ]


def test_partitions_of_the_workload_are_the_same_for_all():
    fixed = WORKLOAD.model_copy(update={"partitions": 4})
    assert [part.workload.partitions for part in parts("kafka-streams", workload=fixed)] == [4, 4]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("flink", {"parallelism": 4}),
        ("spark-microbatch", {"workers": 4, "shuffle_partitions": 4}),
        ("spark-microbatch-standalone", {"workers": 4, "shuffle_partitions": 4}),
        ("spark-realtime", {"workers": 0, "shuffle_partitions": 4}),
    ],
)
def test_an_engine_says_which_settings_are_its_workers(name, settings):
    found = parts(name)[1].pipelines[0].settings
    assert {one: found[one] for one in settings} == settings


@pytest.mark.parametrize(
    ("names", "workers", "reason"),
    [
        (
            ("bytewax",),
            (1, 2),
            "--workers: bytewax: bytewax has no setting for a number of workers (scales_by in its "
            "engine.toml).",
        ),
        (
            ("spark-continuous",),
            (1, 2),
            "--workers: spark-continuous: spark has no setting for a number of workers (scales_by "
            "in its engine.toml).",
        ),
        (("kafka-streams",), (1, 65), "--workers: 65 workers: threads: must be at most 64."),
        (("kafka-streams", "flink"), (1, 2), "--workers needs one pipeline: --pipeline A."),
    ],
)
def test_what_cannot_be_given_workers_is_refused_in_a_sentence(names, workers, reason):
    workload = WORKLOAD.model_copy(update={"scaling": Scaling(workers=workers)})
    with pytest.raises(DefinitionError) as refused:
        parts(*names, workload=workload)
    assert str(refused.value) == reason


def test_the_command_line_gives_other_numbers_of_workers():
    assert scaling_of(WORKLOAD, None) is WORKLOAD
    assert scaling_of(WORKLOAD, "1,2,3").scaling == Scaling(
        workers=(1, 2, 3), partitions_per_worker=2
    )
    bare = WORKLOAD.model_copy(update={"scaling": None})
    assert scaling_of(bare, "2").scaling == Scaling(workers=(2,))
    for given in ("2,1", "1,1", "0", "", "two", "1,2,4096"):
        with pytest.raises(DefinitionError, match="rising whole numbers such as 1,2,4, not"):
            scaling_of(WORKLOAD, given)
    with pytest.raises(DefinitionError, match="such as scalability; smoke has none"):
        scaling_of(load_workload("smoke"), "1,2")


def test_a_search_begins_with_the_rate_that_the_one_before_found():
    one, four = parts("kafka-streams")
    first = one.of_series(new_request(one.workload, one.pipelines, ("parse",), TRAFFIC), [])
    assert first.scaled == one.scaled.model_copy(update={"series": first.run_id})
    assert first.workload.load.rate_per_second == 4000
    series = {"scalability": {"series": "S"}}
    before = report_of(series | {"conclusion": {"search": {"rate_per_second": 12345.6}}})
    unknown = report_of(series)
    request = new_request(four.workload, four.pipelines, ("parse",), TRAFFIC)
    second = four.of_series(request, [before, unknown])
    assert second.scaled.series == "S"
    assert second.workload.load.rate_per_second == 12350
    alone = parts_of(load_workload("smoke"), (load_pipeline("calibration"),))[0]
    assert alone.of_series(request, [before]) is request


def a_run(workers, rate, *, used=0.9, others=0.5, limited_by="pipeline", valid=True, cores=8):
    """A run of a series: the pipeline uses `used` cores, the broker 0.2 and the generator `others`;
    the capacity is at most a tenth above the rate."""
    latency = {"p50": 3, "p99": 9, "intervals": {"p50": [2, 4], "p99": None}}
    resources = {
        "cpu_cores": used,
        "core_seconds_per_million_records": 40.0,
        "core_seconds_interval": [38.0, 42.0],
    }
    search = {"rate_per_second": rate, "interval_per_second": [rate, rate * 1.1]}
    report = {
        "run_id": f"run-{workers}-{rate}",
        "valid": valid,
        "invalid_reasons": [],
        "environment": {"cores": cores},
        "conclusion": {"clean": True, "search": search | {"limited_by": limited_by}},
        "pipelines": {
            f"p-w{workers}": {
                "stages": {"parse": {"latency_ms": {"latest": latency}}},
                "resources": resources,
            }
        },
        "services": {
            "generator": {"cpu_cores": others},
            "kafka": {"cpu_cores": 0.2},
            "machine": {"cpu_cores": used + others + 0.2 + 0.1},
        },
    }
    return SeriesRun(workers, workers, report_of(report))


def test_a_point_has_its_figures_with_intervals_and_the_cores_that_were_free():
    found = judged("S", "p", [[a_run(1, 1000)], [a_run(2, 1900)], [a_run(4, 3400)]])
    one = found.points[0].as_json()
    assert one["rate_per_second"] == {"value": 1000, "low": 1000, "high": 1100}
    assert one["stages"]["parse"] == {
        "p50": {"value": 3, "low": 2, "high": 4},
        "p99": {"value": 9, "low": None, "high": None},
    }
    assert one["core_seconds_per_million_records"] == {"value": 40, "low": 38, "high": 42}
    # 8 less 0.5 of the generator, 0.2 of the broker and 0.1 outside the stack.
    assert one["free_cores"] == pytest.approx(7.2)
    assert found.evidence == [1, 2, 4]
    assert found.law.of_workers == [1, 2, 4]
    assert (found.series, found.pipeline) == ("S", "p")


def test_a_full_machine_is_named_with_what_filled_it():
    runs = [[a_run(n, 1000, others=0.6, cores=2)] for n in (1, 2, 4)]
    used = "in use by others: generator 0.60, kafka 0.20, other processes 0.10"
    found = judged("S", "p", runs)
    assert found.evidence == [1]
    assert [one.objection for one in found.points] == [
        "",
        f"1.1 of 2 cores were free; {used}",
        f"the machine has 2 cores; {used}",
    ]


def test_several_searches_give_the_bounds_of_all_and_invalid_runs_count_for_nothing():
    runs = [a_run(1, 1000), a_run(1, 1200), a_run(1, 9999, valid=False)]
    found = judged("S", "p", [runs])
    one = found.points[0].as_json()
    assert one["rate_per_second"]["value"] == 1100
    assert one["rate_per_second"]["low"] == 1000
    assert one["rate_per_second"]["high"] == pytest.approx(1320)
    assert [run["valid"] for run in one["runs"]] == [True, True, False]
    assert one["core_seconds_per_million_records"]["confidence"] == 0.5, "of two valid runs"
    assert found.law is None
    assert scaling_rows(found) == [
        ("1", "1", "1100 (1000–1320) 1 INVALID", "3 (3–3)", "9 (9–9)", "40 (40–40)", "7.2")
    ]


def test_what_was_not_measured_is_a_dash():
    only = a_run(1, 1000, valid=False, limited_by="machine")
    found = judged("S", "p", [[only]])
    assert scaling_header(found) == (
        "workers",
        "partitions",
        "records/s",
        "core-s per million",
        "free cores",
    )
    assert scaling_rows(found) == [("1", "1", "– 1 INVALID", "–", "–")]
    assert found.points[0].objection == ("no valid search found a rate, limited by the machine")


def test_terminal_and_page_show_the_table_and_what_is_said():
    found = judged("S", "p", [[a_run(1, 1000)], [a_run(2, 1900)], [a_run(4, 3400)]])
    console = Console(width=200, record=True, file=StringIO())
    console.print(terminal._scaling(found))
    text = console.export_text()
    assert "1900 (1900–2090)" in text
    page = str(html._scaling(found))
    assert "1900 (1900–2090)" in page
    assert "Universal Scalability Law of 1, 2 and 4 workers" in page
    assert "no evidence" in page  # the shade starts right of the last number with evidence
    none = judged("S", "p", [[a_run(1, 1000, valid=False)]])
    assert "no law is fitted" in str(html._scaling(none))


def test_a_workload_says_in_words_that_it_is_a_series():
    assert explained(WORKLOAD, TRAFFIC)[-1] == (
        "Scaling: this search with each number of workers: 1, 4. Partitions of each topic: 2 per "
        "worker."
    )
    fixed = WORKLOAD.model_copy(update={"partitions": 4})
    assert explained(fixed, TRAFFIC)[-1].endswith("Partitions of each topic: 4.")


def test_what_is_one_run_of_a_suite_or_a_study_is_no_series(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nsummary = "x"\n[[steps]]\nworkload = "scalability"\n')
    with pytest.raises(DefinitionError, match="scalability is a series of runs, for `run` only"):
        load_suite(str(path))
    with pytest.raises(ValueError, match="scaling needs a search"):
        Workload(name="w", summary="-", load=Constant(rate_per_second=1), scaling=Scaling())
