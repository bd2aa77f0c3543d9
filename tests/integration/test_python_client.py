"""Results in Python, of a recorded run, with a store started for them; and the example program."""

import json
import subprocess
import sys

import psutil
import pytest

import tidegauge
from services.runtime.ports import DEFAULT_BASE_PORT, PORT_OFFSETS
from services.runtime.settings import ROOT
from tests.integration.kafka_broker import free_base_port
from tests.integration.recorded_run import recorded, run_of

pytestmark = pytest.mark.integration
EVENTS = recorded()
RUN_ID = run_of(EVENTS)
WRITE = """
import sys
from pathlib import Path
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import ddl_statements
from services.store.settings import StoreSettings
from schemas import catalogue
from tests.integration.recorded_run import recorded
from tests.integration.store_engine import project
events = recorded()
events += [
    (topic, record | {"run_id": "open"})
    for topic, record in events
    if record.get("event") == "run_requested"
]
engine = ChdbEngine(StoreSettings(data=Path(sys.argv[1])))
engine.execute(ddl_statements())
project(engine, events)
engine.close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with the results of the recorded run, written by another process."""
    made = tmp_path_factory.mktemp("data")
    made.chmod(0o700)
    subprocess.run([sys.executable, "-c", WRITE, str(made)], cwd=ROOT, check=True)
    return made


@pytest.fixture
def environment(folder, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_DATA", str(folder))
    monkeypatch.setenv("TIDEGAUGE_BASE_PORT", str(free_base_port()))
    monkeypatch.delenv("TIDEGAUGE_STORE_URL", raising=False)


def test_runs_figures_and_latencies_are_there_as_arrow_and_pandas(environment):
    with tidegauge.connect() as results:
        assert set(results.runs().arrow["run_id"].to_pylist()) == {RUN_ID, "open"}
        figures = results.figures()
        counts = results.latencies(RUN_ID).pandas()
        rows = results.sql(
            "SELECT stage, measured_outputs FROM figures WHERE run_id = {run:String}", run=RUN_ID
        )
        assert list(results.changes()) == []
        with pytest.raises(tidegauge.ConnectError, match="nothing_like_it"):
            results.sql("SELECT nothing_like_it FROM figures")
        with pytest.raises(tidegauge.ConnectError, match="leave FORMAT out"):
            results.sql("SELECT 1 FORMAT JSON")
    request = next(
        json.loads(record["detail"])
        for _topic, record in EVENTS
        if record.get("event") == "run_requested"
    )
    pipelines = {one["name"] for one in request["pipelines"]}
    frame = figures.pandas()
    assert set(frame.pipeline) == pipelines
    assert str(frame.p50_ms.dtype) == "Int64" or frame.p50_ms.dtype.kind in "fi"
    measured = counts[counts.phase == "measure"]
    by_stage = measured.groupby(["pipeline", "stage"])["count"].sum().to_dict()
    known = frame.set_index(["pipeline", "stage"]).measured_outputs.dropna().to_dict()
    assert by_stage == known
    assert len(rows) == len(frame[frame.run_id == RUN_ID])


def test_the_store_that_was_started_ends_with_the_connection(environment):
    results = tidegauge.connect()
    results.close()
    with pytest.raises(tidegauge.ConnectError, match="does not answer"):
        results.runs()


def test_the_store_that_was_started_does_not_get_the_secrets_of_others(environment, monkeypatch):
    monkeypatch.setenv("AWS_SESSION", "of-another-program")
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", "https://hooks.example/of-the-conductor")
    monkeypatch.setenv("TIDEGAUGE_LOG_LEVEL", "warning")
    before = set(psutil.Process().children())
    with tidegauge.connect():
        (store,) = set(psutil.Process().children()) - before
        known = store.environ()
    assert not {"AWS_SESSION", "TIDEGAUGE_WEBHOOKS"} & set(known)
    assert known["TIDEGAUGE_LOG_LEVEL"] == "warning"


def test_a_folder_without_results_says_how_to_begin(environment, tmp_path):
    with pytest.raises(tidegauge.ConnectError, match=r"start with: \./tidegauge run"):
        tidegauge.connect(data=tmp_path)


def test_the_example_shows_runs_stages_and_tails(environment):
    done = subprocess.run(
        [sys.executable, "examples/results.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert RUN_ID in done.stdout
    assert " join: p99 " in done.stdout
    assert "'missing': " in done.stdout


def test_the_port_is_that_of_the_stack():
    from deploy.wheel import client

    assert client.BASE_PORT == DEFAULT_BASE_PORT
    assert PORT_OFFSETS["store"] == client.STORE_PORT
