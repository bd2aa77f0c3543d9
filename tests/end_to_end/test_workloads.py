"""Runs every ready workload of every domain, shortened, from the command line: the exit code is 0.

On a busy machine a run may be INVALID, if the machine is the only cause. It then proves nothing and
is skipped with its reason. No output may be wrong or unexpected in any case. CHECKS are results of
some workloads that must be in a valid report; the dead letters of `undecodable` must be stored.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from services.definitions.domains import domain_names, load_domain
from services.definitions.pipelines import names
from services.runtime.settings import ROOT
from tests.end_to_end.command import CommandLine
from tests.end_to_end.documented import of_the_machine, told_invalid
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.workloads

BASE_PORT = free_base_port()
SHORT = {
    "latency": 10,
    "undecodable": 10,
    "single-burst": 60,
    "periodic-burst": 30,
    "fluctuating": 60,
    "skew": 10,
    "compare": 10,
    "crowd": 10,
    "failure": 50,
    "calibration": 10,
    "soak": 10,
    "smoke": 5,
    "at-90-percent": 10,
    "overload": 10,
    "sustainable-throughput": 12,
    "scalability": 3,
    "large-windows": 30,
}
OPTIONS = {
    "single-burst": ("--scale", "0.04"),
    "periodic-burst": ("--scale", "0.25"),
    "scalability": ("--workers", "1,2"),
    "sustainable-throughput": ("--threshold", "pipeline.sustainable_rate_per_second >= 1"),
}
# The search comes second to last, so that at-90-percent knows the rate it finds.
SEARCH = "sustainable-throughput"
LAST = (SEARCH, "at-90-percent", "overload")
DEAD_LETTERS = """
    SELECT DISTINCT topic FROM tidegauge.dead_letter
    WHERE producer = 'runner' AND run_id = '{run_id}'
"""
OF_DOMAINS = [
    (domain, name)
    for domain in domain_names()
    for name in names(load_domain(domain).folder / "workloads")
]
ORDER = (*(name for name in names(ROOT / "workloads") if name not in LAST), *LAST)


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path_factory.mktemp("stack"), BASE_PORT)
    yield command
    command("down")  # an aborted run leaves its stack running


@pytest.mark.parametrize("name", ORDER)
def test_a_shortened_workload_ends_with_0_or_a_true_reason(
    tidegauge: CommandLine, name: str
) -> None:
    path = report_of(tidegauge, name)
    options = ("--warm-up", "3", "--duration", str(SHORT.get(name, 10)), "--report", str(path))
    done = tidegauge("run", name, *options, *OPTIONS.get(name, ()))
    if name in LAST[1:] and not knows_a_rate(tidegauge):
        assert done.returncode == 2
        assert "No sustainable rate is known for spark-microbatch" in done.stderr
        pytest.skip("no valid search found a rate")
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    runs = [{"valid": report["valid"], "clean": report["conclusion"]["clean"]}]
    runs += [run for one in points_of(report) for run in one["runs"]]
    good = all(run["valid"] and run["clean"] for run in runs)
    assert done.returncode == (0 if good else 1), done.stdout + done.stderr
    for verdicts in verdicts_of(report):
        assert verdicts["wrong"] == verdicts["unexpected"] == 0, done.stdout
    if not all(run["valid"] for run in runs):
        skip_for_the_machine(done.stdout)
    assert any(verdicts["exact"] for verdicts in verdicts_of(report)), done.stdout
    CHECKS.get(name, nothing)(report)
    if name == "undecodable":
        assert has_dead_letters(tidegauge, report["run_id"])


@pytest.mark.parametrize(("domain", "name"), OF_DOMAINS)
def test_a_workload_of_a_domain_is_clean(tidegauge: CommandLine, domain: str, name: str) -> None:
    path = report_of(tidegauge, f"{domain}-{name}")
    options = ("--warm-up", "3", "--duration", "20", "--report", str(path))
    done = tidegauge("run", name, "--domain", domain, *options, *OPTIONS.get(name, ()))
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    for verdicts in verdicts_of(report):
        assert verdicts["wrong"] == verdicts["unexpected"] == 0, done.stdout
    if not report["valid"]:
        skip_for_the_machine(done.stdout)
    assert done.returncode == 0, done.stdout
    assert all(verdicts["exact"] for verdicts in verdicts_of(report)), done.stdout


def skip_for_the_machine(said: str) -> NoReturn:
    """Skip a command with INVALID runs, if the machine is the only cause."""
    reasons = told_invalid(said)
    assert of_the_machine(*reasons), said
    pytest.skip("INVALID: " + " ".join(reasons))


def report_of(tidegauge: CommandLine, name: str) -> Path:
    return tidegauge.data / f"{name}.json"


def knows_a_rate(tidegauge: CommandLine) -> bool:
    """Whether the search was run and its result is usable."""
    path = report_of(tidegauge, SEARCH)
    return path.exists() and json.loads(path.read_text())["valid"]


def has_dead_letters(tidegauge: CommandLine, run_id: str) -> bool:
    """Whether undecodable values that a pipeline reported are stored."""
    done = tidegauge("sql", DEAD_LETTERS.format(run_id=run_id), "--format", "JSONCompactEachRow")
    assert done.returncode == 0, done.stderr
    return bool(done.stdout.strip())


def verdicts_of(report: dict[str, Any]) -> list[dict[str, int]]:
    """The counts of every pipeline and stage."""
    stages = [cell for one in report["pipelines"].values() for cell in one["stages"].values()]
    return [cell["verdicts"] for cell in stages]


def points_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Results by number of workers; empty for other workloads."""
    return (report["scalability"] or {}).get("points", [])


def nothing(_report: dict[str, Any]) -> None:
    """This workload has no results of its own to check."""


def recoveries(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        figures
        for pipeline in report["pipelines"].values()
        for cell in pipeline["stages"].values()
        for figures in cell["recovery"]
    ]


def has_worked_off_its_backlog(report: dict[str, Any]) -> None:
    found = recoveries(report)
    assert [figures["event"] for figures in found] == ["start of the pipelines"] * 2
    assert all(figures["first_output_s"] > 0 for figures in found)


def has_its_bursts(report: dict[str, Any]) -> None:
    assert {figures["event"] for figures in recoveries(report)} >= {"burst 1", "burst 2"}


def was_killed(report: dict[str, Any]) -> None:
    assert {figures["event"] for figures in recoveries(report)} == {"kill of the driver"}
    assert report["pipelines"]["spark-microbatch"]["restarts"]


def has_found_a_rate(report: dict[str, Any]) -> None:
    search = report["conclusion"]["search"]
    assert search["rate_per_second"] > 0
    assert search["verified"]
    assert search["steps"]
    (row,) = report["thresholds"]
    assert (row["value"], row["passed"]) == (search["rate_per_second"], True)


def has_a_rate_for_each_number_of_workers(report: dict[str, Any]) -> None:
    points = points_of(report)
    assert [(one["workers"], one["partitions"]) for one in points] == [(1, 1), (2, 2)]
    assert all(one["rate_per_second"]["value"] > 0 for one in points)
    assert report["scalability"]["law"] is None
    assert "no law is fitted" in report["scalability"]["said"][-1]


def shows_the_delay(report: dict[str, Any]) -> None:
    parse = report["pipelines"]["calibration"]["stages"]["parse"]
    assert parse["latency_ms"]["latest"]["min"] >= 50


CHECKS = {
    "single-burst": has_worked_off_its_backlog,
    "periodic-burst": has_its_bursts,
    "failure": was_killed,
    "sustainable-throughput": has_found_a_rate,
    "calibration": shows_the_delay,
    "scalability": has_a_rate_for_each_number_of_workers,
}
