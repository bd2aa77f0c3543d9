"""A pipeline that is deliberately slow is stopped early: exit code, early end, and one report each
for a job and for a team. The team's webhook is unavailable until both runs are over."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.end_to_end.command import CommandLine
from tests.end_to_end.workload_files import changed_workload
from tests.integration.kafka_broker import free_base_port
from tests.receiver import receiving

pytestmark = pytest.mark.end_to_end

SLOWED = 'name = "slowed"\nsummary = "-"\nengine = "calibration"\ndelay_ms = 80\n'
LIMIT = "parse.p50_ms <= 60"
HOLDS = "parse.missing == 0"
FAILED = f"failed: {LIMIT}; slowed parse has"
ABORTED = "The run was ended by a threshold that failed:"
LONG_S = 170
THRESHOLDS = (
    "SELECT threshold, stage, value, passed FROM tidegauge.threshold_results"
    " WHERE run_id = '{run_id}'"
)


@dataclass(frozen=True)
class Ended:
    """A finished run and its results."""

    code: int
    said: str
    report: dict[str, Any]
    cases: list[ElementTree.Element]
    summary: str
    thresholds: list[list[Any]]  # in SQL: threshold, stage, value, passed


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ended, Ended, list[Any]]]:
    """A complete run, an aborted run, and what the webhook received about both."""
    folder = tmp_path_factory.mktemp("stack")
    with receiving() as away:
        port, url = away.server_port, away.url
    command = CommandLine(folder, free_base_port())
    webhooks = {
        "TIDEGAUGE_WEBHOOKS": json.dumps({"team": {"url": url}}),
        "TIDEGAUGE_WEBHOOK_MOST_RETRY_S": "2",
    }
    with command.stack(**webhooks):
        failed = slowed_run(command, "failed", 2, LIMIT, HOLDS)
        aborted = slowed_run(command, "aborted", LONG_S, f"{LIMIT} abort")
        wait_until_waiting(folder, 2)
        with receiving(port) as back:
            back.wait_for(2)
            wait_until_waiting(folder, 0)
            bodies = list(back.bodies)
        yield failed, aborted, bodies


def slowed_run(command: CommandLine, name: str, seconds: int, *limits: str) -> Ended:
    folder = command.data
    pipeline = folder / "slowed.toml"
    pipeline.write_text(SLOWED)
    changes = {"keep_up_s = 4": "keep_up_s = 2"}
    workload = changed_workload("smoke", folder / f"{name}.toml", changes)
    files = {kind: folder / f"{name}.{kind}" for kind in ("json", "xml", "md")}
    done = command(
        *("run", str(workload), "--pipeline", str(pipeline), "--stages", "1"),
        *("--warm-up", "0", "--duration", str(seconds), "--report", str(files["json"])),
        *("--junit", str(files["xml"]), "--markdown", str(files["md"])),
        *(word for limit in limits for word in ("--threshold", limit)),
    )
    assert files["json"].exists(), done.stdout + done.stderr
    report = json.loads(files["json"].read_text())
    answer = command(
        *("sql", THRESHOLDS.format(run_id=report["run_id"]), "--format", "JSONCompactEachRow")
    )
    return Ended(
        done.returncode,
        done.stdout + done.stderr,
        report,
        list(ElementTree.parse(files["xml"]).iter("testcase")),
        files["md"].read_text(),
        [json.loads(line) for line in answer.stdout.splitlines()],
    )


def wait_until_waiting(folder: Path, count: int) -> None:
    """Wait until this many messages are queued for the webhook."""
    deadline_s = time.monotonic() + 90
    while True:
        waiting = json.loads((folder / "notices.json").read_text())["waiting"]
        if len(waiting["team"]) == count:
            return
        assert time.monotonic() < deadline_s, waiting
        time.sleep(0.05)


def failures_of(run: Ended) -> list[tuple[str | None, str]]:
    """Name and message of every test case that failed."""
    found = [(case.get("name"), case.find("failure")) for case in run.cases]
    return [(name, failure.get("message", "")) for name, failure in found if failure is not None]


def test_a_run_whose_threshold_fails_ends_with_3_and_says_so_once_each(told) -> None:
    run, _, bodies = told
    assert run.code == 3, run.said
    assert run.report["valid"], run.said
    assert run.said.count(f"threshold {FAILED}") == 1
    # A hundred records per second for two seconds: it did not end early.
    assert run.report["input"]["records"] == 200
    assert [(row["threshold"], row["passed"]) for row in run.report["thresholds"]] == [
        (LIMIT, False),
        (HOLDS, True),
    ]
    latest = run.report["pipelines"]["slowed"]["stages"]["parse"]["latency_ms"]["latest"]
    assert run.report["thresholds"][0]["value"] == latest["p50"] >= 80
    assert run.thresholds == [
        [LIMIT, "parse", latest["p50"], False],
        [HOLDS, "parse", 0, True],
    ]
    assert [case.get("name") for case in run.cases] == [
        "valid",
        "every output is exact",
        LIMIT,
        HOLDS,
    ]
    ((name, message),) = failures_of(run)
    assert (name, message.startswith(FAILED)) == (LIMIT, True)
    assert run.summary.count(f"\n- {FAILED}") == run.summary.count("failed") == 1
    mine = [body for body in bodies if body["run_id"] == run.report["run_id"]]
    assert [(body["kinds"], body["title"]) for body in mine] == [
        (["threshold"], "smoke on slowed: a threshold failed")
    ]
    assert [line.startswith(FAILED) for line in mine[0]["lines"]] == [True]


def test_a_threshold_with_abort_ends_the_run_early_and_says_so_once_each(told) -> None:
    _, run, bodies = told
    assert run.code == 3, run.said
    assert not run.report["valid"]
    (reason,) = run.report["invalid_reasons"]
    assert reason.startswith(f"{ABORTED} {LIMIT} abort; slowed parse has")
    assert run.report["input"]["records"] < 100 * LONG_S / 4
    assert [name for name, _ in failures_of(run)] == ["valid", f"{LIMIT} abort"]
    assert run.summary.count(ABORTED) == 1
    assert run.summary.count(f"\n- failed: {LIMIT} abort; slowed parse has") == 1
    mine = [body for body in bodies if body["run_id"] == run.report["run_id"]]
    assert [body["kinds"] for body in mine] == [["threshold", "invalid"]]
    assert sum(line.startswith("failed: ") for line in mine[0]["lines"]) == 1
    assert sum(line.startswith(ABORTED) for line in mine[0]["lines"]) == 1


def test_the_webhook_that_was_away_gets_each_run_once_and_in_order(told) -> None:
    failed, aborted, bodies = told
    assert [body["run_id"] for body in bodies] == [
        failed.report["run_id"],
        aborted.report["run_id"],
    ]
    assert len({body["id"] for body in bodies}) == 2
