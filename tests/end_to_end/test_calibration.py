"""The whole stack with pipelines whose delays and faults are known, compared with a brute force.

One run measures four of them on the same input: one with deliberate faults, and three that are only
slow. Two more runs on the same stack test repeated runs and long windows, which need no other
pipelines.
"""

import json
import re
import subprocess
from collections import Counter
from ipaddress import ip_address
from xml.etree import ElementTree

import psutil
import pytest

from schemas import protocol
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import ROOT, CommandLine, is_disturbed
from tests.end_to_end.implied import judged_by_brute_force
from tests.end_to_end.workload_files import NEVER_LATE, changed_workload
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
DEADLINE_MS = 5_000
STAGES = ("ingest", "parse", "tumbling")
RATE, WARM_UP_S, MEASURE_S = 400, 1, 5
DELAYS_MS = {"faulty": 50, "undelayed": 0, "by5": 5, "by500": 500}
FAULTS = """
drop_one_in = 1000
duplicate_one_in = 1000
late_one_in = 1000
late_ms = 6000
corrupt_one_in = 1000
"""
PIPELINE = """
name = "{name}"
summary = "-"
engine = "calibration"
stages = ["ingest", "parse", "tumbling"]
delay_ms = {delay_ms}
"""


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory):
    command = CommandLine(tmp_path_factory.mktemp("stack"), BASE_PORT)
    with command.stack():
        yield command


def files_of(tidegauge, delays_ms):
    """Pipeline files by name and delay; the one named `faulty` has faults."""
    files = {name: tidegauge.data / f"{name}.toml" for name in delays_ms}
    for name, file in files.items():
        text = PIPELINE.format(name=name, delay_ms=delays_ms[name])
        file.write_text(text + (FAULTS if name == "faulty" else ""))
    return ",".join(map(str, files.values()))


@pytest.fixture(scope="module")
def report(tidegauge):
    """Report of the run, which is valid but not clean, so the exit code is 1."""
    path = tidegauge.data / "report.json"
    changes = NEVER_LATE | {
        "deadline_ms = 10_000": f"deadline_ms = {DEADLINE_MS}",
        "cool_down_s = 5": "cool_down_s = 3",
        "give_up_ms = 20_000": "give_up_ms = 8_000",
        'name = "latency"': 'name = "latency"\nkeep_up_s = 2\nprocessing_time = true',
    }
    workload = changed_workload("latency", tidegauge.data / "short.toml", changes)
    done, found = tidegauge.measured(
        *(path, str(workload), "--pipeline", files_of(tidegauge, DELAYS_MS), "--stages", "0,1,3"),
        *("--rate", str(RATE), "--warm-up", str(WARM_UP_S), "--duration", str(MEASURE_S)),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert (found["valid"], found["invalid_reasons"]) == (True, [])
    assert set(found["pipelines"]) == set(DELAYS_MS)
    return found


@pytest.fixture(scope="module")
def brute_force(tidegauge, report):
    """Verdicts and latencies by pipeline, computed from the topics alone."""
    settings = ServiceSettings(base_port=BASE_PORT, data=tidegauge.data)
    return judged_by_brute_force(settings, report["run_id"], tuple(DELAYS_MS), DEADLINE_MS)


def verdicts(report, pipeline, stage):
    shown = report["pipelines"][pipeline]["stages"][stage]["verdicts"]
    return {name: shown[name] for name in protocol.VERDICTS}


@pytest.mark.parametrize("stage", ["ingest", "parse"])
def test_every_fault_gets_its_verdict(report, stage):
    # Sequence numbers 400 to 2,399 are measured: each fault hits two of them. More of them may
    # be late on a busy machine; the brute force tells which.
    found = verdicts(report, "faulty", stage)
    on_time, late = found.pop("exact"), found.pop("late")
    assert found == {"wrong": 2, "missing": 2, "duplicate": 2, "unexpected": 0}
    assert (on_time + late, late >= 2) == (1_996, True)


@pytest.fixture(scope="module")
def in_sql(tidegauge, report):
    """p50, p95 and p99 of `latest` by pipeline and stage, computed in SQL from the raw counts."""
    query = (
        "SELECT pipeline, stage, quantilesExactWeighted(0.5, 0.95, 0.99)(latency_ms, count)"
        f" FROM tidegauge.results_latency WHERE run_id = '{report['run_id']}'"
        " AND definition = 'latest' AND phase = 'measure' GROUP BY pipeline, stage"
    )
    answer = tidegauge("sql", query, "--format", "JSONCompactEachRow")
    assert answer.returncode == 0, answer.stderr
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    return {(pipeline, stage): levels for pipeline, stage, levels in rows}


@pytest.mark.parametrize("pipeline", DELAYS_MS)
def test_percentiles_and_verdicts_are_those_of_brute_force(report, brute_force, in_sql, pipeline):
    expected, latencies = brute_force[pipeline]
    for stage in STAGES:
        assert verdicts(report, pipeline, stage) == {
            name: expected[stage, name] for name in protocol.VERDICTS
        }
        every = sorted(ms for (of, ms), n in latencies.items() for _ in range(n) if of == stage)
        ranks = [-(-len(every) * level // 100) for level in (50, 95, 99)]
        assert in_sql[pipeline, stage] == [every[rank - 1] for rank in ranks]
        assert every[0] >= DELAYS_MS[pipeline]


def test_processing_times_are_those_of_brute_force(tidegauge, report):
    settings = ServiceSettings(base_port=BASE_PORT, data=tidegauge.data)
    implied = judged_by_brute_force(
        settings, report["run_id"], tuple(DELAYS_MS), DEADLINE_MS, handed=True
    )
    query = (
        "SELECT pipeline, stage, latency_ms, sum(count) FROM tidegauge.results_latency"
        f" WHERE run_id = '{report['run_id']}' AND definition = 'processing_time'"
        " AND phase = 'measure' GROUP BY ALL"
    )
    answer = tidegauge("sql", query, "--format", "JSONCompactEachRow")
    assert answer.returncode == 0, answer.stderr
    counted = {pipeline: Counter() for pipeline in DELAYS_MS}
    for line in answer.stdout.splitlines():
        pipeline, stage, latency_ms, count = json.loads(line)
        counted[pipeline][stage, int(latency_ms)] = int(count)
    assert counted == {pipeline: latencies for pipeline, (_, latencies) in implied.items()}
    for counts in counted.values():
        assert counts.total() > 1_000
        assert min(ms for _, ms in counts) >= 0


def test_the_pull_rates_have_every_record(tidegauge, report):
    query = (
        "SELECT sum(records) AS n FROM tidegauge.pull_rates"
        f" WHERE run_id = '{report['run_id']}' AND pipeline = 'by5'"
    )
    answer = tidegauge("sql", query, "--format", "JSONEachRow")
    assert int(json.loads(answer.stdout)["n"]) >= report["input"]["records"]


def test_single_pairs_say_what_the_counts_say(tidegauge, report):
    query = (
        "SELECT pipeline, stage, phase, verdict, latest_ms, mean_ms, event_time_ms, count() AS n"
        f" FROM tidegauge.pairs WHERE run_id = '{report['run_id']}' GROUP BY ALL"
    )
    answer = tidegauge("sql", query, "--format", "JSONCompactEachRow")
    assert answer.returncode == 0, answer.stderr
    found, judged_so = Counter(), Counter()
    for line in answer.stdout.splitlines():
        pipeline, stage, phase, verdict, *latencies, count = json.loads(line)
        for definition, latency_ms in zip(("latest", "mean", "event_time"), latencies, strict=True):
            found[pipeline, stage, phase, definition, int(latency_ms)] += int(count)
        if phase == "measure":
            judged_so[pipeline, stage, verdict] += int(count)
    query = (
        "SELECT pipeline, stage, phase, definition, latency_ms, sum(count)"
        f" FROM tidegauge.results_latency WHERE run_id = '{report['run_id']}'"
        " AND definition != 'processing_time' GROUP BY ALL"
    )
    answer = tidegauge("sql", query, "--format", "JSONCompactEachRow")
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert found == {(*row[:4], int(row[4])): int(row[5]) for row in rows}
    for (pipeline, stage, verdict), count in judged_so.items():
        assert verdicts(report, pipeline, stage)[verdict] == count


def test_every_port_of_the_stack_is_on_loopback(tidegauge, report):
    ports = {
        (connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
        for process in tidegauge.running()
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(ports) >= 5  # broker, store and others
    assert [one for one in ports if not ip_address(one[0]).is_loopback] == []


def test_the_log_of_the_evaluator_is_plain_text(tidegauge, report):
    log = tidegauge.data / "logs" / "evaluator.log"
    assert "evaluation_started" in log.read_text()
    assert "\x1b" not in log.read_text()


def test_a_second_evaluation_gives_the_live_result(tidegauge, report):
    again = tidegauge("evaluate", report["run_id"])
    assert again.returncode == 0, again.stdout + again.stderr
    assert "EQUAL to the live result." in again.stdout
    assert tidegauge("evaluate", "no-such-run").returncode == 2


def test_repeated_runs_give_the_median_run_and_every_figure_with_its_values(tidegauge):
    path = tidegauge.data / "repeated.json"
    changes = {"keep_up_s = 4": "keep_up_s = 2"}
    workload = changed_workload("smoke", tidegauge.data / "brief.toml", changes)
    done, found = tidegauge.measured(
        *(path, str(workload), "--pipeline", "calibration", "--stages", "1", "--repeat", "2"),
        *("--warm-up", "0", "--duration", "1"),
        spoilt=lambda report: any(map(is_disturbed, report["repetition"]["runs"])),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs, 2 valid" in done.stdout
    repeated = found["repetition"]
    run_ids = [run["run_id"] for run in repeated["runs"]]
    assert [(run["valid"], run["clean"]) for run in repeated["runs"]] == [(True, True)] * 2
    assert repeated["median_run"] == found["run_id"]
    assert found["run_id"] in run_ids
    query = (
        "SELECT p50_ms FROM tidegauge.latency_summary WHERE phase = 'measure'"
        f" AND definition = 'latest' AND run_id IN ('{run_ids[0]}', '{run_ids[1]}') ORDER BY run_id"
    )
    answer = tidegauge("sql", query, "--format", "JSONCompactEachRow")
    medians = [json.loads(line)[0] for line in answer.stdout.splitlines()]
    latest = repeated["pipelines"]["calibration"]["stages"]["parse"]["latency_ms"]["latest"]
    assert latest["p50"]["values"] == medians
    assert min(medians) >= 50  # the delay of the pipeline
    assert run_ids == sorted(set(run_ids))  # two runs, one after the other
    for run_id in run_ids:
        again = tidegauge("report", run_id)
        (line,) = (one for one in again.stdout.splitlines() if "median run" in one)
        assert found["run_id"] in line
        assert "calibration parse: p50 " in again.stdout
    query = (
        f"SELECT figure, median FROM tidegauge.repetitions WHERE run_id = '{found['run_id']}'"
        " AND stage = 'parse' AND definition = 'latest'"
    )
    rows = map(json.loads, tidegauge("sql", query, "--json").stdout.splitlines())
    told = {row["figure"]: row["median"] for row in rows}
    assert told == {figure: one["median"] for figure, one in latest.items()}


def brief_run(tidegauge, *more, floor_s=0, spoilt=is_disturbed):
    """A run of `calibration`, which has a delay of 50 ms; returns the process and its report."""
    path = tidegauge.data / "gated.json"
    changes = {"keep_up_s = 4": f"keep_up_s = 2\nfloor_s = {floor_s}"}
    workload = changed_workload("smoke", tidegauge.data / "gated.toml", changes)
    return tidegauge.measured(
        *(path, str(workload), "--pipeline", "calibration", "--stages", "1", "--warm-up", "0"),
        *more,
        spoilt=spoilt,
    )


def is_unsteady(report):
    return is_disturbed(report) or report["steady"] is not True


def test_a_job_gets_its_files_and_the_exit_code(tidegauge, tmp_path):
    changes = {"keep_up_s = 4": "keep_up_s = 2"}
    summary = tmp_path / "summary.md"
    done = subprocess.run(
        [ROOT / "deploy" / "github" / "run.sh"],
        env=tidegauge.environment
        | {
            "WORKLOAD": str(changed_workload("smoke", tidegauge.data / "job.toml", changes)),
            "PIPELINE": "calibration",
            "ARGUMENTS": "--stages 1 --warm-up 0 --duration 2",
            "THRESHOLDS": "parse.p50_ms <= 49\n\n  *.not_exact == 0\n",
            "FOLDER": str(tmp_path / "results"),
            "ROOT": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "failed: parse.p50_ms <= 49; calibration parse has" in summary.read_text()
    results = tmp_path / "results"
    outputs = (tmp_path / "outputs").read_text()
    assert outputs == f"code=3\nreport={results / 'report.json'}\n"
    cases = ElementTree.parse(tmp_path / "results" / "junit.xml").iter("testcase")
    assert [case.find("failure") is None for case in cases] == [True, True, False, True]
    figures = json.loads((tmp_path / "results" / "benchmark.json").read_text())
    assert figures[0]["name"] == "calibration parse p50"
    assert figures[0]["value"] >= 50
    found = json.loads((tmp_path / "results" / "report.json").read_text())
    assert [row["passed"] for row in found["thresholds"]] == [False, True]


def test_a_baseline_is_a_report_of_before_which_may_have_a_floor(tidegauge):
    baseline = tidegauge.data / "baseline.json"
    done, found = brief_run(
        tidegauge, "--duration", "2", "--threshold", "parse.p50_ms >= 50", floor_s=2
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["floor"]["count"] == 200  # 100 records/s for 2 s, before the run
    assert 0 <= found["floor"]["p50"] <= found["floor"]["max"]
    assert "Floor: a plain copy took p50" in done.stdout
    cell = found["pipelines"]["calibration"]["stages"]["parse"]["latency_ms"]["latest"]
    cell["p50"] = 10
    baseline.write_text(json.dumps(found))
    line = "parse.p50_ms <= 1.5 * baseline"
    done, found = brief_run(
        tidegauge, "--duration", "2", "--threshold", line, "--baseline", str(baseline)
    )
    assert done.returncode == 3, done.stdout + done.stderr
    (row,) = found["thresholds"]
    assert (row["pipeline"], row["limit"], row["passed"]) == ("calibration", 15, False)
    assert f"1.5 * baseline (10 in {baseline})" in row["threshold"]
    again = json.loads(tidegauge("report", found["run_id"], "--json").stdout)
    assert again["baseline"] == found["baseline"]
    query = (
        "SELECT against, before, after, verdict FROM tidegauge.comparisons"
        f" WHERE run_id = '{found['run_id']}' AND stage = 'parse' AND figure = 'p50'"
    )
    told = json.loads(tidegauge("sql", query, "--json").stdout)
    compared = next(one for one in found["baseline"]["rows"] if one["figure"] == "p50")
    assert (told["against"], told["verdict"]) == (str(baseline), compared["verdict"])
    assert (told["before"], told["after"]) == (10, compared["now"])


def test_a_warm_up_ends_when_all_is_steady(tidegauge):
    lengths = ("--warm-up", "auto", "--duration", "2")
    done, found = brief_run(tidegauge, *lengths, spoilt=is_unsteady)
    assert done.returncode == 0, done.stdout + done.stderr
    warm_up = found["conclusion"]["warm_up"]
    assert (found["steady"], warm_up["until_steady"]) == (True, True)
    assert 10 <= warm_up["seconds"] <= 60
    assert f"Steady in the measured phase, after {warm_up['seconds']} s of warm-up." in done.stdout
    # A hundred records per second for two seconds.
    assert found["input"]["records"] == 200
    verdicts = found["pipelines"]["calibration"]["stages"]["parse"]["verdicts"]
    assert (verdicts["exact"], sum(verdicts.values())) == (200, 200)


FALLING = """
name = "falling"
summary = "As an engine that warms up while it is measured."
engine = "calibration"
stages = ["parse"]
delay_ms = 5
falling_ms = 80
falling_half_s = 10
"""


def test_a_delay_that_still_falls_while_it_is_measured_is_named(tidegauge):
    """From second 2 to 20 the delay falls from 75 to 25 ms. The median of the first third is that
    of second 5, 62 ms; of the last third that of second 17, 30 ms."""
    path = tidegauge.data / "falling.toml"
    path.write_text(FALLING)
    lengths = ("--warm-up", "2", "--duration", "18")
    done, found = brief_run(tidegauge, "--pipeline", str(path), *lengths)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["steady"] is False
    (moved,) = (one for one in found["warm_up"]["moving"] if "parse: p50" in one)
    told = r"falling parse: p50 fell by (\d+)(?:\.5)? ms in 12 s, from (\d+)(?:\.5)? to (\d+)"
    by_ms, before_ms, after_ms = map(int, re.match(told, moved).groups())
    assert 20 <= by_ms <= 45
    assert 50 <= before_ms <= 75
    assert 25 <= after_ms <= 45
    assert "NOT STEADY in the measured phase, after 2 s of warm-up; still changing: fal" in (
        done.stdout
    )


def test_two_pipelines_in_turns_have_half_of_the_records_each(tidegauge):
    delays_ms = {"quick": 5, "slow": 60}
    pipelines = ("--pipeline", files_of(tidegauge, delays_ms), "--interleave")
    done, found = brief_run(tidegauge, *pipelines, "--duration", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    turns = found["interleaved"]
    assert turns["order"] == ["quick", "slow", "slow", "quick"]
    assert (turns["block_s"], turns["blocks"]) == (6, 2)
    (pair,) = turns["pairs"]
    for (name, delay_ms), figures in zip(delays_ms.items(), pair["stages"]["parse"], strict=True):
        verdicts = found["pipelines"][name]["stages"]["parse"]["verdicts"]
        assert verdicts["exact"] == sum(verdicts.values()) == 600  # of a block
        assert figures["mean"] >= delay_ms
    assert "it needs --duration 60 or longer" in done.stdout
    assert "Interleaved: Too few blocks to compare slow with quick" in done.stdout
    query = f"SELECT * FROM tidegauge.comparisons WHERE run_id = '{found['run_id']}'"
    told = json.loads(tidegauge("sql", query, "--json").stdout)
    assert (told["kind"], told["against"]) == ("interleaved", "quick")
    assert (told["said"], told["figure"]) == (turns["said"], "")
