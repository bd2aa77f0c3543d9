"""Every ready workload, shortened, from the command line: it ends, with 0 or a true reason.

On a machine that is busy a run may be INVALID or its ledger not clean; then it must say so. What
must be in its report must be there in any case.
"""

import json
from typing import Any

import pytest

from services.runtime.definitions import names
from services.runtime.settings import ROOT
from tests.end_to_end.command import CommandLine

pytestmark = [pytest.mark.workloads, pytest.mark.timeout(900)]

BASE_PORT = 21_470
SHORT = {
    "latency": 10,
    "undecodable": 10,
    "single-burst": 30,
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
    "sustainable-throughput": 12,
    "large-windows": 30,
}
# The search comes last but one, so that the rate it finds is known to at-90-percent.
LAST = ("sustainable-throughput", "at-90-percent")
ORDER = (*(name for name in names(ROOT / "workloads") if name not in LAST), *LAST)


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("stack"), BASE_PORT)


@pytest.mark.parametrize("name", ORDER)
def test_a_shortened_workload_ends_with_0_or_a_true_reason(
    tidegauge: CommandLine, name: str
) -> None:
    path = tidegauge.data / f"{name}.json"
    options = ("--warm-up", "3", "--duration", str(SHORT.get(name, 10)), "--report", str(path))
    done = tidegauge("run", name, *options)
    if name == "at-90-percent" and not path.exists():
        assert done.returncode == 2
        assert "No sustainable rate is known for spark-microbatch" in done.stderr
        return
    report = json.loads(path.read_text())
    good = report["valid"] and report["conclusion"]["clean"]
    assert done.returncode == (0 if good else 1), done.stdout + done.stderr
    if not report["valid"]:
        assert report["invalid_reasons"]
        assert "INVALID" in done.stdout
    else:
        CHECKS.get(name, nothing)(report)


def nothing(_report: dict[str, Any]) -> None:
    """Nothing that only this workload has."""


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


def shows_the_delay(report: dict[str, Any]) -> None:
    parse = report["pipelines"]["calibration"]["stages"]["parse"]
    assert parse["latency_ms"]["latest"]["min"] >= 50


CHECKS = {
    "single-burst": has_worked_off_its_backlog,
    "periodic-burst": has_its_bursts,
    "failure": was_killed,
    "sustainable-throughput": has_found_a_rate,
    "calibration": shows_the_delay,
}
