"""A custom engine in every domain, and deliberate faults in domains other than traffic.

The engine is a copy of examples/toy_engine in a folder named by TIDEGAUGE_ENGINES. As
docs/write-an-engine.md says, the copy has a path of its own to the kinds of stages.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.protocol import VERDICTS
from services.definitions.domains import domain_names, load_domain
from tests.end_to_end.command import ROOT, CommandLine
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.engines

BASE_PORT = free_base_port()
TOY = 'name = "mine"\nsummary = "-"\nengine = "toy"\nlinger_ms = 1\n'
# One of each fault per 50 outputs; late ones exceed the deadline of the workload below.
FAULTY = """
name = "faulty"
summary = "-"
engine = "calibration"
delay_ms = 20
drop_one_in = 50
duplicate_one_in = 50
late_one_in = 50
late_ms = 14_000
corrupt_one_in = 50
"""
DEADLINES = {
    "deadline_ms = 20_000": "deadline_ms = 12_000",
    "give_up_ms = 40_000": "give_up_ms = 20_000",
}


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder = tmp_path_factory.mktemp("engines")
    shutil.copytree(ROOT / "examples" / "toy_engine", folder / "engines" / "toy")
    definition = folder / "engines" / "toy" / "engine.toml"
    definition.write_text(
        definition.read_text().replace("../../engines/python", str(ROOT / "engines" / "python"))
    )
    (folder / "mine.toml").write_text(TOY)
    (folder / "faulty.toml").write_text(FAULTY)
    command = CommandLine(folder, BASE_PORT)
    up = command("up", "--detach", TIDEGAUGE_ENGINES=str(folder / "engines"))
    assert up.returncode == 0, up.stdout + up.stderr
    yield command
    assert command("down").returncode == 0


def run(tidegauge: CommandLine, workload: str, domain: str, code: int, *more: str) -> Any:
    """Report of a run of all stages of a domain, which is valid and ends with this exit code."""
    last = len(load_domain(domain).spec.stages) - 1
    done, report = tidegauge.measured(
        *(tidegauge.data / "report.json", workload, "--domain", domain, "--stages", f"0-{last}"),
        *more,
        TIDEGAUGE_ENGINES=str(tidegauge.data / "engines"),
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert (report["valid"], report["invalid_reasons"]) == (True, [])
    return report


def verdicts(report: Any, pipeline: str) -> dict[str, dict[str, int]]:
    """Counts by stage and verdict."""
    return {
        stage: {name: found["verdicts"][name] for name in VERDICTS}
        for stage, found in report["pipelines"][pipeline]["stages"].items()
    }


def is_exact(counts: dict[str, int]) -> bool:
    """Whether there were outputs, and all were exact."""
    return counts["exact"] == sum(counts.values()) > 0


@pytest.mark.parametrize("domain", domain_names())
def test_a_toy_engine_publishes_every_stage_of_every_domain(
    tidegauge: CommandLine, domain: str
) -> None:
    mine = str(tidegauge.data / "mine.toml")
    found = verdicts(run(tidegauge, "smoke", domain, 0, "--pipeline", mine), "mine")
    assert tuple(found) == load_domain(domain).spec.stage_names
    assert [stage for stage, counts in found.items() if not is_exact(counts)] == []


def test_a_toy_engine_runs_a_new_domain_of_ones_own(tidegauge: CommandLine) -> None:
    made = tidegauge("new", "domain", "shop", "--folder", str(tidegauge.data))
    assert made.returncode == 0, made.stdout + made.stderr
    folder, mine = str(tidegauge.data / "shop"), str(tidegauge.data / "mine.toml")
    lengths = ("--warm-up", "2", "--duration", "5")
    found = verdicts(run(tidegauge, "latency", folder, 0, "--pipeline", mine, *lengths), "mine")
    assert list(found) == ["ingest", "parse", "totals"]
    assert all(is_exact(counts) for counts in found.values())


def test_faults_on_purpose_get_their_verdicts_in_another_domain(tidegauge: CommandLine) -> None:
    text = (ROOT / "domains" / "gem_packs" / "workloads" / "smoke.toml").read_text()
    for before, after in DEADLINES.items():
        assert before in text
        text = text.replace(before, after)
    workload = tidegauge.data / "faults.toml"
    workload.write_text(text)
    faulty = str(tidegauge.data / "faulty.toml")
    found = verdicts(run(tidegauge, str(workload), "gem_packs", 1, "--pipeline", faulty), "faulty")
    # Sequence numbers 200 to 1,199 are measured: each fault hits twenty of them.
    expected = {"exact": 940, "wrong": 20, "missing": 20, "late": 20, "duplicate": 20}
    assert found["ingest"] == found["parse"] == expected | {"unexpected": 0}
    # Outputs of several records are numbered by their addresses, so each fault hits about one in
    # fifty.
    for fault in ("wrong", "missing", "late", "duplicate"):
        assert found["conversions"][fault] > 0
    assert {counts["unexpected"] for counts in found.values()} == {0}
