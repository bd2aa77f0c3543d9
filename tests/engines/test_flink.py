"""Flink: every stage of every domain exact, in both wire formats, with windows of both kinds, in
transactions, and when it is killed."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.protocol import VERDICTS
from services.runtime.domains import domain_names, load_domain
from services.runtime.settings import ROOT
from tests.end_to_end.command import CommandLine
from tests.end_to_end.workload_files import changed_workload, patient_workload

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

BASE_PORT = 22_870
TRAFFIC = load_domain("traffic").spec.stage_names
TRANSACTIONS = """
name = "transactions"
summary = "-"
engine = "flink"
guarantee = "exactly-once"
checkpoint_interval_ms = 500
state_backend = "rocksdb"
parallelism = 2
"""
# What makes the windows of traffic counted ones.
COUNTED = (
    'complete = { column = "num_lanes", every_s = 1 }\n',
    'once_per = ["lane"]\n',
)


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path_factory.mktemp("flink"), BASE_PORT, timeout_s=280)
    up = command("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    yield command
    assert command("down").returncode == 0


def run(tidegauge: CommandLine, workload: str, pipeline: str, *more: str) -> Any:
    """The report of a valid run with a clean ledger."""
    path = tidegauge.data / "report.json"
    done = tidegauge("run", workload, "--pipeline", pipeline, "--report", str(path), *more)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(path.read_text())["pipelines"].values()
    return found


def exact(found: Any) -> tuple[str, ...]:
    """The stages that have outputs, all of them exact."""
    counts = {stage: cell["verdicts"] for stage, cell in found["stages"].items()}
    assert all(set(one) == set(VERDICTS) for one in counts.values())
    return tuple(stage for stage, one in counts.items() if one["exact"] == sum(one.values()) > 0)


@pytest.mark.parametrize("domain", domain_names())
def test_it_publishes_every_stage_of_every_domain(tidegauge: CommandLine, domain: str) -> None:
    stages = load_domain(domain).spec.stage_names
    last = str(len(stages) - 1)
    found = run(tidegauge, "smoke", "flink", "--domain", domain, "--stages", f"0-{last}")
    assert exact(found) == stages
    assert found["topology"] == "chained"


def test_it_reads_json(tidegauge: CommandLine) -> None:
    as_json = {"[phases]": '[content]\nformat = "json"\n\n[phases]'}
    workload = changed_workload("smoke", tidegauge.data / "json.toml", as_json)
    assert exact(run(tidegauge, str(workload), "flink", "--stages", "0-4")) == TRAFFIC


def test_windows_that_the_watermark_closes_change_against_those_before(
    tidegauge: CommandLine,
) -> None:
    folder = tidegauge.data / "closed"
    shutil.copytree(ROOT / "domains" / "traffic", folder)
    text = (folder / "domain.toml").read_text()
    for piece in COUNTED:
        assert piece in text
        text = text.replace(piece, "")
    (folder / "domain.toml").write_text(text.replace('name = "traffic"', 'name = "closed"'))
    found = run(tidegauge, "smoke", "flink", "--domain", str(folder), "--stages", "0-4")
    assert exact(found) == TRAFFIC


def test_transactions_rocksdb_and_two_subtasks_are_as_exact(tidegauge: CommandLine) -> None:
    own = tidegauge.data / "transactions.toml"
    own.write_text(TRANSACTIONS)
    assert exact(run(tidegauge, "smoke", str(own), "--stages", "0-4")) == TRAFFIC


def test_killed_it_goes_on_from_its_newest_checkpoint(tidegauge: CommandLine) -> None:
    lengths = ("--rate", "100", "--warm-up", "5", "--duration", "30", "--stages", "0-4")
    patient = str(patient_workload(tidegauge.data))
    found = run(tidegauge, patient, "flink", "--kill", "driver", *lengths)
    (restart,) = found["restarts"]
    assert 0 < restart["outage_s"] < 60
    cells = [cell["verdicts"] for cell in found["stages"].values()]
    lost = ("missing", "wrong", "unexpected", "late")
    assert {one: sum(cell[one] for cell in cells) for one in lost} == dict.fromkeys(lost, 0)
    # Checkpoints are 5 s apart; from the beginning it would be more than 1,500.
    assert 0 < found["stages"]["ingest"]["verdicts"]["duplicate"] < 1_000
