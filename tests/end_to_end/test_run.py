"""One run with every service, then queries about it: what the README promises."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from schemas.protocol import OF_EVERY_STAGE, VERDICTS
from tests.end_to_end.command import CommandLine
from tests.end_to_end.conftest import BASE_PORT, MEASURE_S, RATE, Finished
from tests.traffic import STAGES

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def tidegauge(finished: Finished) -> CommandLine:
    return finished.command


@pytest.fixture
def run(finished: Finished) -> dict[str, Any]:
    return finished.report


def test_every_expected_output_of_every_stage_is_exact(run) -> None:
    # 100 records/s are 50 lanes, on 31 sites: two copies of the sample's 12 sites have 38 lanes.
    # The twelve lanes left are the seven sites with the most lanes of the third copy that fit. Each
    # site has one window per second.
    lanes = RATE // 2
    for pipeline in ("spark-realtime", "spark-microbatch"):
        stages = run["pipelines"][pipeline]["stages"]
        exact = {stage: stages[stage]["verdicts"]["exact"] for stage in STAGES}
        assert exact["ingest"] == exact["parse"] == RATE * MEASURE_S
        assert exact["join"] == lanes * MEASURE_S
        assert exact["tumbling"] == exact["sliding"] > 0
        assert exact["tumbling"] % MEASURE_S == 0


def test_a_program_of_ones_own_is_measured_on_the_same_input(run) -> None:
    stages = run["pipelines"]["external-python"]["stages"]
    assert set(stages) == {"ingest", "parse"}
    for stage in stages.values():
        assert stage["verdicts"]["exact"] == sum(stage["verdicts"].values()) == RATE * MEASURE_S


def test_the_report_has_the_keys_of_the_contract(run) -> None:
    keys = [
        "run_id",
        "workload",
        "valid",
        "invalid_reasons",
        "environment",
        "input",
        "pipelines",
        "conclusion",
    ]
    assert set(keys) <= set(run)
    assert set(run["input"]) == {"records", "records_per_second", "send_delay_ms"}
    assert set(run["input"]["send_delay_ms"]) == {"p50", "p99", "max"}
    for pipeline in run["pipelines"].values():
        assert {"stages", "resources"} <= set(pipeline)
        assert pipeline["resources"]["cpu_seconds"] > 0
        for cell in pipeline["stages"].values():
            assert set(cell["verdicts"]) == set(VERDICTS)
            assert set(cell["latency_ms"]) == set(OF_EVERY_STAGE)
            for figures in cell["latency_ms"].values():
                wanted = {"count", "min", "p50", "p90", "p95", "p99", "p999", "max", "mean"}
                assert wanted <= set(figures)


def test_the_input_is_the_rate_that_was_asked_for(run) -> None:
    assert run["input"]["records"] == RATE * MEASURE_S
    assert run["input"]["records_per_second"] == RATE


def test_real_time_mode_goes_on_in_one_batch_where_micro_batches_follow_each_other(
    run, tidegauge: CommandLine
) -> None:
    """A real-time batch only reports at its end, which is after 300 s."""
    sql = (
        "SELECT pipeline, uniqExact(batch_id) FROM tidegauge.results_pipeline"
        f" WHERE run_id = '{run['run_id']}' AND stage = 'join' GROUP BY pipeline"
    )
    done = tidegauge("sql", sql, "--format", "JSONCompactEachRow")
    assert done.returncode == 0, done.stderr
    batches = dict(json.loads(line) for line in done.stdout.splitlines())
    assert int(batches.get("spark-realtime", 0)) <= 1
    assert int(batches["spark-microbatch"]) > 1


def test_sql_from_the_raw_counts_equals_the_report(run, tidegauge: CommandLine) -> None:
    sql = (
        "SELECT pipeline, stage, definition, sum(count) AS n,"
        " quantileExactWeighted(0.5)(latency_ms, count) AS p50,"
        " quantileExactWeighted(0.99)(latency_ms, count) AS p99, max(latency_ms) AS most"
        " FROM tidegauge.results_latency"
        f" WHERE run_id = '{run['run_id']}' AND phase = 'measure' GROUP BY ALL"
    )
    done = tidegauge("sql", sql, "--format", "JSONCompactEachRow")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == (2 * len(STAGES) + 2) * len(OF_EVERY_STAGE)
    for pipeline, stage, definition, count, p50, p99, most in rows:
        figures = run["pipelines"][pipeline]["stages"][stage]["latency_ms"][definition]
        wanted = [figures[name] for name in ("count", "p50", "p99", "max")]
        assert [int(count), p50, p99, most] == wanted


def test_the_report_can_be_asked_for_again(run, tidegauge: CommandLine) -> None:
    done = tidegauge("report", "--json")
    assert json.loads(done.stdout) == run
    (line,) = [line for line in tidegauge("runs").stdout.splitlines() if run["run_id"] in line]
    assert "  valid, ledger clean" in line
    assert ("NOT steady" in line) == (run["steady"] is False)


def test_the_report_is_also_a_page_of_its_own(run, tidegauge: CommandLine, finished) -> None:
    path = finished.place / "report.html"
    done = tidegauge("report", "--html", str(path))
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert run["run_id"] in text
    # Four charts and the ledger of each pipeline; two of resources.
    assert text.count("<svg") == len(run["pipelines"]) * 5 + 2


def test_no_process_is_left_behind(run, tidegauge: CommandLine) -> None:
    assert tidegauge.processes() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "latencyy"], "There is no workload 'latencyy'"),
        (["run", "--rate", "0"], "--rate must be greater than 0 and finite."),
        (["run", "--pipeline", "heron"], "There is no pipeline 'heron'"),
        (["run", "--stages", "9"], "--stages: stages must be like 0-4"),
        (["report", "nosuchrun"], "There is no run 'nosuchrun'"),
        (["sql", "SELECT nosuch"], "nosuch"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_code_2(
    run, tidegauge: CommandLine, arguments: list[str], sentence: str
) -> None:
    done = tidegauge(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_broken_workload_file_is_named_with_its_line(
    tidegauge: CommandLine, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("name = \n")
    done = tidegauge("run", str(broken))
    assert done.returncode == 2
    assert f"{broken} is not valid TOML" in done.stderr
    assert "line 1" in done.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", BASE_PORT + 100)):
        done = CommandLine(tmp_path, BASE_PORT + 100)("run")
    assert done.returncode == 2
    assert str(BASE_PORT + 100) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
