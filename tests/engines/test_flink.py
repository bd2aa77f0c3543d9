"""Flink by its DataStream API and by SQL: every stage of every domain is exact, in both wire
formats, with windows of both kinds, in transactions, and after a kill."""

import shutil
from collections.abc import Iterator

import pytest

from services.runtime.settings import ROOT
from tests.end_to_end.workload_files import changed_workload, patient_workload
from tests.engines.runs import Runs, runs_of

pytestmark = pytest.mark.engines

BASE_PORT = 22_870
TRAFFIC = ["ingest", "parse", "join", "tumbling", "sliding"]
GEM_PACKS = [
    *("ingest", "parse", "revenue", "conversions", "average", "highest"),
    *("enriched", "offers", "dear", "dear_average", "total"),
]
CHAINED = """
name = "{name}-chained"
summary = "-"
engine = "flink"
implementation = "{implementation}"
incomplete_windows = "{incomplete}"
reads = {{ tumbling = "join" }}
"""
TRANSACTIONS = """
name = "transactions"
summary = "-"
engine = "{name}"
guarantee = "exactly-once"
checkpoint_interval_ms = 500
{state} = "rocksdb"
parallelism = 2
"""
STATE = {"flink": "state", "flink-sql": "state_backend"}
LOST = ("missing", "wrong", "unexpected")
# The lines that make the windows of traffic counted ones.
COUNTED = ('complete = { column = "num_lanes", every_s = 1 }\n', 'once_per = ["lane"]\n')


@pytest.fixture(scope="module", params=["flink", "flink-sql"])
def flink(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    with runs_of(request.param, tmp_path_factory.mktemp(request.param), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage(flink: Runs) -> None:
    assert flink.exact("traffic") == TRAFFIC
    assert flink.exact("gem_packs") == GEM_PACKS
    assert flink.exact("flights") == [
        *("ingest", "parse", "area", "emergencies", "departures", "countries", "cells")
    ]


def test_it_reads_json(flink: Runs) -> None:
    as_json = {"[phases]": '[content]\nformat = "json"\n\n[phases]'}
    workload = changed_workload("smoke", flink.command.data / "json.toml", as_json)
    assert flink.exact("traffic", str(workload)) == TRAFFIC


def test_windows_that_the_watermark_closes_change_against_those_before(flink: Runs) -> None:
    folder = flink.command.data / "closed"
    shutil.copytree(ROOT / "domains" / "traffic", folder)
    text = (folder / "domain.toml").read_text()
    for piece in COUNTED:
        assert piece in text
        text = text.replace(piece, "")
    (folder / "domain.toml").write_text(text.replace('name = "traffic"', 'name = "closed"'))
    assert flink.exact(str(folder)) == TRAFFIC


@pytest.mark.parametrize("flink", ["flink"], indirect=True)
def test_flinks_own_joins_and_windows_are_as_exact(flink: Runs) -> None:
    own = Runs(flink.command, "flink-builtin")
    assert own.exact("traffic") == TRAFFIC
    assert own.exact("gem_packs") == GEM_PACKS


@pytest.mark.parametrize("flink", ["flink"], indirect=True)
@pytest.mark.parametrize(
    ("implementation", "incomplete"), [("customised", "withhold"), ("built-in", "publish")]
)
def test_windows_behind_the_join_are_as_exact(
    flink: Runs, implementation: str, incomplete: str
) -> None:
    path = flink.command.data / "chained.toml"
    settings = {"implementation": implementation, "incomplete": incomplete}
    path.write_text(CHAINED.format(name=implementation, **settings))
    chained = Runs(flink.command, f"{implementation}-chained", str(path))
    assert chained.exact("traffic") == TRAFFIC


def test_transactions_rocksdb_and_two_subtasks_are_as_exact(flink: Runs) -> None:
    own = flink.command.data / "transactions.toml"
    own.write_text(TRANSACTIONS.format(name=flink.pipeline, state=STATE[flink.pipeline]))
    assert Runs(flink.command, "transactions", str(own)).exact("traffic") == TRAFFIC


def test_in_transactions_a_kill_repeats_nothing_and_what_was_written_is_aborted(
    flink: Runs,
) -> None:
    own = flink.command.data / "transactions.toml"
    own.write_text(TRANSACTIONS.format(name=flink.pipeline, state=STATE[flink.pipeline]))
    lengths = ("--rate", "100", "--warm-up", "3", "--duration", "20", "--kill", "driver")
    found = Runs(flink.command, "transactions", str(own)).committed("traffic", *lengths)
    repeated = (*LOST, "duplicate")
    assert [cell["verdicts"][one] for cell in found.values() for one in repeated] == [0] * 20
    assert all(cell["aborted"] for cell in found.values())


def test_killed_it_goes_on_from_its_newest_checkpoint(flink: Runs) -> None:
    found = flink.killed_verdicts("traffic")
    assert [cell[one] for cell in found.values() for one in (*LOST, "late")] == [0] * 20
    # Checkpoints are 5 s apart. Replaying from the beginning would give more than 1,300.
    assert 0 < found["ingest"]["duplicate"] < 1_000


@pytest.mark.parametrize("flink", ["flink"], indirect=True)
def test_task_managers_in_processes_of_their_own_are_as_exact_and_are_replaced(
    flink: Runs,
) -> None:
    cluster = Runs(flink.command, "flink-cluster")
    assert cluster.exact("traffic") == TRAFFIC
    found = cluster.killed_verdicts("traffic", "worker")
    assert [cell[one] for cell in found.values() for one in LOST] == [0] * 15
    assert found["ingest"]["duplicate"] < 1_000


FAULTS = """
kills = [
    { target = "worker", at_s = 2, most = 1 },
    { target = "driver", at_s = 17, signal = "pause", for_s = 2 },
    { target = "driver", at_s = 22, signal = "terminate" },
]
"""


@pytest.mark.parametrize("flink", ["flink"], indirect=True)
def test_a_cluster_survives_one_dead_task_manager_a_pause_and_a_redeployment(flink: Runs) -> None:
    workload = flink.command.data / "faults.toml"
    workload.write_text(
        FAULTS.lstrip() + patient_workload(flink.command.data).read_text(), encoding="utf-8"
    )
    lengths = ("--rate", "100", "--warm-up", "3", "--duration", "45")
    found = Runs(flink.command, "flink-cluster").faulty(workload, *lengths)
    assert [cell["verdicts"][one] for cell in found.values() for one in LOST] == [0] * 15
    assert [each["event"] for each in found["ingest"]["recovery"]] == [
        *("kill of 1 worker", "pause of the driver for 2 s", "termination of the driver"),
    ]


def test_a_value_that_is_no_record_becomes_a_dead_letter(flink: Runs) -> None:
    told, planted = flink.dead_letters()
    assert planted.total() > 5
    assert told == planted
