"""The processes for the watches of a data folder."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from schemas import catalogue
from services.definitions.watches import end_watch, keep_watch, position_path
from services.runtime.figure_metrics import FigureCounts
from services.watcher import processes as module
from services.watcher.processes import BUSY_LOOKS, WatchProcesses
from services.watcher.seats import SHOWN, arguments
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit


class Process:
    """A process that runs until it is stopped."""

    def __init__(self, code_at_end=0):
        self.returncode, self._code = None, code_at_end
        self.stdout = io.BytesIO()

    def poll(self):
        return self.returncode

    def terminate(self):
        self.returncode = self._code

    def wait(self, _timeout_s=None):
        return self.returncode


class Started:
    """Records started processes; those that only conclude are marked with a minus. leaving: names
    of watches that were stopped and have not ended."""

    def __init__(self):
        self.names, self.processes = [], []
        self.leaving, self.own = set(), []

    def look(self):
        pass

    def close(self):
        pass

    def is_leaving(self, name):
        return name in self.leaving

    def give_own(self, name):
        self.own.append(name)
        return True

    def start(self, name, is_concluding):
        self.names.append(f"-{name}" if is_concluding else name)
        self.processes.append(Process())
        return self.processes[-1]


@pytest.fixture
def started():
    return Started()


@pytest.fixture
def processes(tmp_path, started):
    keep_watch(tmp_path, a_watch())
    found = WatchProcesses(tmp_path, None, started)
    found.tick()
    return found


def left_by(tmp_path):
    path = position_path(tmp_path, "w")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    return path


def test_what_a_process_leaves_of_an_ended_watch_is_concluded_by_another_once(
    tmp_path, started, processes
):
    left_by(tmp_path)
    end_watch(tmp_path, "w")
    processes.tick()
    assert started.names == ["w", "-w"]
    started.processes[1].returncode = 0
    processes.tick()
    assert started.names == ["w", "-w"]


def test_what_could_not_be_concluded_is_tried_again_after_a_pause(tmp_path):
    left_by(tmp_path)
    started, told, now_s = Started(), [], [0.0]
    events = SimpleNamespace(publish=lambda event: told.append(event.detail))
    processes = WatchProcesses(tmp_path, events, started, lambda: now_s[0])
    processes.tick()
    started.processes[0].returncode = 1
    started.processes[0].stdout = io.BytesIO(b"The watched cluster is unreachable.\n")
    for now_s[0] in (1.0, 1.5, 3.0):
        processes.tick()
    assert started.names == ["-w", "-w"]
    assert told == [
        {
            **{"kind": "ended", "watch": "w", "code": 1, "again_in_s": 2.0},
            "reason": "The watched cluster is unreachable.",
        }
    ]
    started.processes[1].returncode = 0
    now_s[0] = 100.0
    processes.tick()
    assert started.names == ["-w", "-w"]


def test_a_watch_that_has_concluded_itself_is_left_alone(tmp_path, started, processes):
    end_watch(tmp_path, "w")
    processes.tick()
    assert started.names == ["w"]
    assert started.processes[0].returncode == 0


def test_a_watch_begins_anew_when_what_was_left_of_it_is_concluded(tmp_path, started, processes):
    path = left_by(tmp_path)
    end_watch(tmp_path, "w")
    processes.tick()
    keep_watch(tmp_path, a_watch())
    processes.tick()
    assert started.names == ["w", "-w"]
    path.unlink()
    started.processes[1].returncode = 0
    processes.tick()
    assert started.names == ["w", "-w", "w"]
    processes.close()
    assert started.processes[2].returncode == 0


def test_the_name_is_the_last_argument_of_a_process():
    assert arguments("w", True) == ["--conclude", "w"]
    assert arguments("w", False) == ["w"]


def test_a_process_with_a_long_reason_ends_before_it_is_read():
    code = "from services.watcher.process import _end; _end('w', 'x' * 1_000_000)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.wait(30) == 1
    assert module._reason(process) == "x" * module.MOST_REASON_BYTES


def scraped(processes):
    """Values by name and labels, as Prometheus' client library reads them."""
    registry = CollectorRegistry()
    registry.register(processes.metrics)
    text = generate_latest(registry).decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def line(records, **fields):
    """What a process writes of a topic with this many records."""
    counts = FigureCounts()
    of = {"topic": "in", "pipeline": "", "stage": "", "bytes": 1, "aborted": 0}
    counts.add(catalogue.THROUGHPUT, of | {"records": records})
    lags = [["g", "in", 3, 0.125, 7.5], ["g", "other", 4, None, None]]
    used = {"name": "shared-1", "memory_bytes": 6_000, "cpu_s": 2.5, "thread_s": 0.5}
    shown = {"figures": counts.saved(), "lag_ms": 1_500, "is_valid": True, "lags": lags}
    shown["process"] = used
    return SHOWN + json.dumps(shown | fields).encode() + b"\n"


def test_the_figures_of_a_process_are_those_of_its_last_whole_line(started, processes):
    whole = line(5) + line(7, is_valid=False)
    started.processes[0].stdout = io.BytesIO(whole + line(9)[:20])
    processes.tick()
    samples = scraped(processes)
    assert samples["tidegauge_topic_records_total", "", "", "in", "w"] == 7
    assert samples["tidegauge_watch_lag_seconds", "w"] == 1.5
    assert samples["tidegauge_watch_valid", "w"] == 0
    assert samples["tidegauge_watch_process_watches", "shared-1"] == 1
    assert samples["tidegauge_watch_process_memory_bytes", "shared-1"] == 6_000
    assert samples["tidegauge_watch_process_cpu_seconds_total", "shared-1"] == 2.5
    assert samples["tidegauge_group_lag_records", "g", "in", "w"] == 3
    assert samples["tidegauge_group_lag_records", "g", "other", "w"] == 4
    assert samples["tidegauge_group_lag_seconds", "g", "in", "w"] == 0.125
    assert samples["tidegauge_group_catch_up_seconds", "g", "in", "w"] == 7.5
    unknown = {"tidegauge_group_lag_seconds", "tidegauge_group_catch_up_seconds"}
    assert not {(name, "g", "other", "w") for name in unknown} & samples.keys()
    started.processes[0].stdout = io.BytesIO(line(9)[20:])
    processes.tick()
    assert scraped(processes)["tidegauge_topic_records_total", "", "", "in", "w"] == 9


def test_a_watch_that_is_ended_has_no_figures(tmp_path, started, processes):
    started.processes[0].stdout = io.BytesIO(line(5))
    processes.tick()
    assert scraped(processes)
    end_watch(tmp_path, "w")
    processes.tick()
    assert scraped(processes) == {}


def test_the_reason_of_an_end_is_not_a_line_of_figures(tmp_path, started):
    keep_watch(tmp_path, a_watch())
    told = []
    processes = WatchProcesses(
        tmp_path, SimpleNamespace(publish=lambda event: told.append(event.detail)), started
    )
    processes.tick()
    started.processes[0].stdout = io.BytesIO(line(5) + b"It is")
    processes.tick()
    started.processes[0].returncode = 1
    started.processes[0].stdout = io.BytesIO(b" over.")
    processes.tick()
    assert told[0]["reason"] == "It is over."


def test_a_watch_that_was_stopped_starts_again_once_it_has_ended(tmp_path, started, processes):
    end_watch(tmp_path, "w")
    started.leaving.add("w")
    left_by(tmp_path)
    processes.tick()
    keep_watch(tmp_path, a_watch())
    processes.tick()
    assert started.names == ["w"]
    started.leaving.clear()
    processes.tick()
    assert started.names == ["w", "w"]


@pytest.mark.parametrize(("cores", "names"), [(0.1, ["w"]), (0.3, ["w", "w"])])
def test_a_watch_that_takes_much_of_a_shared_process_gets_its_own(tmp_path, cores, names):
    keep_watch(tmp_path, a_watch())
    started, now_s = Started(), [100.0]
    processes = WatchProcesses(tmp_path, None, started, lambda: now_s[0])
    processes.tick()
    for _ in range(BUSY_LOOKS + 1):
        now_s[0] += 10.0
        used = {"name": "shared-1", "memory_bytes": 1, "cpu_s": 9.0, "thread_s": cores * now_s[0]}
        started.processes[0].stdout = io.BytesIO(line(5, process=used))
        processes.tick()
    processes.tick()
    assert started.names == names
    assert started.own == ["w"] * (len(names) - 1)
    own = {"name": "w", "memory_bytes": 1, "cpu_s": 9.0}
    for look in range(BUSY_LOOKS + 2):  # it stays there, whatever it takes
        now_s[0] += 10.0
        shown = line(6, process=own | {"thread_s": 9.0 * look})
        started.processes[-1].stdout = io.BytesIO(shown)
        processes.tick()
    assert started.names == names
