"""The whole stack with a system behind sockets: exact verdicts, latencies in nanoseconds, and what
was lost at each place."""

import json
import shutil
import subprocess
import tomllib

import pytest

from tests.end_to_end.command import ROOT, CommandLine
from tests.end_to_end.dropping_system import AFTER, BEFORE, EVERY, INSIDE
from tests.end_to_end.recorded_states import assert_each_once, usable_states, write_recording
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
STAGES = ("ingest", "parse", "area")
PIPELINE = """
name = "{name}"
summary = "-"
engine = "socket"
stages = {stages}
command = {command}
answers = "{answers}"
"""
WORKLOAD = """
name = "over-the-network"
summary = "-"
domain = "flights"
stages = ["ingest", "parse", "area"]
keep_up_s = 2
thresholds = ["*.lost <= 0"]
load = { shape = "constant", rate_per_second = 700 }
content = { aircraft = 500 }
phases = { warm_up_s = 1, measure_s = 3, cool_down_s = 3 }
judgement = { deadline_ms = 4_000, give_up_ms = 5_000 }
validity = { max_send_delay_p99_ms = 60_000 }
"""
RECORDS = 7 * 700
EXAMPLE, DROPPING = (
    ["python", str(ROOT / program)]
    for program in ("examples/socket/system.py", "tests/end_to_end/dropping_system.py")
)


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory):
    command = CommandLine(tmp_path_factory.mktemp("stack"), BASE_PORT)
    (command.data / "network.toml").write_text(WORKLOAD)
    with command.stack():
        yield command


def run(tidegauge, command, transport, answers="same", stages=STAGES):
    """The finished command, the report of a run, and its stages."""
    name = f"by-{transport}-and-{answers}-{len(stages)}"
    pipeline, path = tidegauge.data / f"{name}.toml", tidegauge.data / f"{name}.json"
    texts = {"command": json.dumps(command), "stages": json.dumps(stages)}
    pipeline.write_text(PIPELINE.format(name=name, answers=answers, **texts))
    done = tidegauge(
        *("run", str(tidegauge.data / "network.toml"), "--pipeline", str(pipeline)),
        *("--transport", transport, "--report", str(path), "--stages", ",".join(stages)),
    )
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert report["valid"], report["invalid_reasons"]
    return done, report, report["pipelines"][name]["stages"]


@pytest.mark.parametrize(
    ("transport", "answers"), [("tcp", "same"), ("zeromq", "tcp"), ("tcp", "zeromq")]
)
def test_nothing_is_lost_by_transports_with_back_pressure(tidegauge, transport, answers):
    done, report, stages = run(tidegauge, EXAMPLE, transport, answers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["input"]["records"] == 3 * 700
    nothing = {"lost": 0, "before": 0, "inside": 0, "after": 0}
    for name, stage in stages.items():
        loss, times, exact = stage["loss"], stage["socket_ns"], stage["verdicts"]["exact"]
        assert {place: loss[place] for place in nothing} == nothing, name
        assert loss["due"] == loss["received"]
        assert stage["verdicts"] == dict.fromkeys(stage["verdicts"], 0) | {"exact": exact}
        assert times["count"] == exact > 0
        assert 0 < times["min"] <= times["p50"] <= times["max"] < 60 * 1_000_000_000
    assert stages["ingest"]["loss"]["due"] == stages["parse"]["loss"]["due"] == RECORDS
    assert stages["ingest"]["verdicts"]["exact"] == 3 * 700


def test_what_is_dropped_on_purpose_is_what_is_lost_at_each_place(tidegauge):
    done, report, stages = run(tidegauge, DROPPING, "tcp")
    dropped = {
        place: len(range(number, RECORDS, EVERY))
        for place, number in (("before", BEFORE), ("inside", INSIDE), ("after", AFTER))
    }
    assert dropped == {"before": 5, "inside": 5, "after": 4}
    lost = sum(dropped.values())
    expected = {"due": RECORDS, "received": RECORDS - lost, "lost": lost} | dropped
    assert stages["ingest"]["loss"] == stages["parse"]["loss"] == expected
    area = stages["area"]["loss"]
    assert area["due"] - area["received"] == area["lost"] <= lost
    # How many of the records that were lost on the way were above central Europe is not known.
    assert (area["before"], area["inside"]) == (5, None)
    assert done.returncode == 3, done.stdout + done.stderr
    failed = {row["stage"]: row["value"] for row in report["thresholds"] if not row["passed"]}
    assert failed["parse"] == lost
    rows = tidegauge(
        "sql",
        "SELECT transport, due - received, lost, lost_before, lost_inside, lost_after FROM losses"
        f" WHERE run_id = '{report['run_id']}' AND stage = 'parse' FORMAT TSV",
    )
    assert rows.stdout.split() == ["tcp", str(lost), str(lost), "5", "5", "4"]


@pytest.mark.parametrize("pipeline", ["calibration", "socket-python"])
def test_each_state_of_a_recording_has_its_results_once(tidegauge, tmp_path, pipeline):
    """Through the gateway and Kafka, and without both."""
    write_recording(tmp_path / "states.json", seconds=14, states_per_second=143)
    assert len(usable_states(tmp_path / "states.json")) == 2_002
    assert_each_once(tidegauge, tmp_path, pipeline, "tcp", load_s=7)


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go to build the example with")
def test_the_example_in_go_publishes_every_record_unchanged(tidegauge, tmp_path):
    program = tmp_path / "socket-go"
    built = subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=ROOT / "examples" / "socket_go",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    done, _, stages = run(tidegauge, [str(program)], "tcp", stages=("ingest",))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(stages) == ["ingest"]
    whole = {"due": RECORDS, "received": RECORDS, "lost": 0, "before": 0, "inside": 0, "after": 0}
    assert stages["ingest"]["loss"] == whole


def test_a_system_behind_sockets_needs_a_transport(tidegauge):
    assert tomllib.loads(WORKLOAD).get("transport") is None
    done = tidegauge("run", "smoke", "--domain", "flights", "--pipeline", "socket-python")
    assert done.returncode == 2
    needed = "socket-python is a system behind sockets and needs a transport: --transport tcp,"
    assert needed in done.stderr
