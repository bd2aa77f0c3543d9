"""A watch exported by one process, from a real cluster, without a bus and a store."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import psutil
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from services.runtime.settings import ROOT
from tests.integration.watched_pipeline import Load, make_topics

pytestmark = pytest.mark.integration
DEADLINE_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def watch_file(folder, broker, name, **more):
    """A watch of the topics `NAME-in` and `NAME-out`."""
    fields = {"name": name, "begin": "earliest", "run_s": 86_400} | more
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    lines += [f'kafka.bootstrap = "{broker.bootstrap}"']
    lines += ["[relation]", "deadline_ms = 2000", "give_up_ms = 4000", "remember_ms = 8000"]
    lines += ["[[inputs]]", f'topic = "{name}-in"', "[[outputs]]", f'topic = "{name}-out"']
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def pairs(name, lost=10):
    """Records of a pipeline that loses one in `lost` and repeats one in 25."""

    def record(number):
        key = b"%d" % number
        yield f"{name}-in", key, b"value", None
        if number % lost:
            yield f"{name}-out", key, b"value", None
        if number % 25 == 1:
            yield f"{name}-out", key, b"value", None

    return record


def send(broker, name, count, first=0):
    """Send all records of `pairs`."""
    load = Load(broker.bootstrap, pairs(name), count=count, per_second=5_000, first=first)
    load.start()
    load.join()


def command(path, folder, port, *more):
    told = ["watch", str(path), "--export", "--port", str(port), "--data", str(folder / "data")]
    return [sys.executable, "-m", "services.console", *told, *more]


@contextmanager
def exported(path, folder, port, *more):
    """The process that exports a watch."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(
            command(path, folder, port, *more), env=environ, stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def get(port, path, accept=""):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.read().decode()


def samples(port):
    """Values by name and, of labels, the one that tells them apart."""
    found = {}
    for family in prometheus(get(port, "/metrics")):
        for sample in family.samples:
            label = sample.labels.get("verdict") or sample.labels.get("topic")
            if sample.name.startswith("tidegauge_") and "le" not in sample.labels:
                found[sample.name, label] = sample.value
    return found


def await_that(process, folder, is_so):
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            if is_so():
                return
        except (OSError, urllib.error.URLError):
            pass
        assert process.poll() is None, (folder / "output").read_text()
        assert time.monotonic() < end_s, (folder / "output").read_text()
        time.sleep(0.1)  # poll interval


def verdicts(port):
    return {
        verdict: int(value)
        for (name, verdict), value in samples(port).items()
        if name == "tidegauge_verdicts_total" and value
    }


def test_figures_are_those_of_the_topics_and_a_restart_goes_on(broker, tmp_path):
    make_topics(broker.bootstrap, **{"first-in": 2, "first-out": 2})
    path, port = watch_file(tmp_path, broker, "first"), free_port()
    send(broker, "first", 500)
    wanted = {"exact": 450, "missing": 50, "duplicate": 20}
    with exported(path, tmp_path, port) as process:
        await_that(process, tmp_path, lambda: verdicts(port) == wanted)
        assert psutil.Process(process.pid).children() == []
        found = samples(port)
        assert found["tidegauge_topic_records_total", "first-in"] == 500
        assert found["tidegauge_topic_records_total", "first-out"] == 470
        assert found["tidegauge_output_latency_seconds_count", None] == 450
        assert found["tidegauge_watch_valid", None] == 1
        assert list(open_metrics(get(port, "/metrics", "application/openmetrics-text")))
        text = get(port, "/")
        assert "first-in → first-out" in text
        assert "VALID so far." in text
        assert "<td>missing<td>50" in text
        assert get(port, "/health/ready") == "ready\n"
    assert process.returncode == 0
    send(broker, "first", 100, first=500)
    with exported(path, tmp_path, port) as process:
        # Counters begin at 0, the run goes on.
        await_that(process, tmp_path, lambda: verdicts(port).get("missing") == 10)
        assert verdicts(port) == {"exact": 90, "missing": 10, "duplicate": 4}
        assert "<td>missing<td>60" in get(port, "/")


def test_a_limited_time_is_a_run_with_a_report_and_thresholds(broker, tmp_path):
    make_topics(broker.bootstrap, **{"gate-in": 1, "gate-out": 1})
    path, port = watch_file(tmp_path, broker, "gate", begin="now"), free_port()
    more = ["--duration", "12", "--threshold", "missing <= 0", "--threshold", "p99_ms <= 60000"]
    more += ["--report", str(tmp_path / "report.json"), "--junit", str(tmp_path / "junit.xml")]
    load = Load(broker.bootstrap, pairs("gate"), count=100_000, per_second=100)
    with exported(path, tmp_path, port, *more) as process:
        await_that(process, tmp_path, lambda: get(port, "/health/ready") == "ready\n")
        load.start()
        await_that(process, tmp_path, lambda: verdicts(port).get("missing", 0) >= 10)
        assert process.wait(DEADLINE_S) == 3, (tmp_path / "output").read_text()
    load.end()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["valid"]
    stage = report["pipelines"]["gate"]["stages"]["output"]
    assert stage["verdicts"]["missing"] >= 10
    assert stage["verdicts"]["exact"] == stage["latency_ms"]["latest"]["count"]
    assert {row["threshold"]: row["passed"] for row in report["thresholds"]} == {
        "output.missing <= 0": False,
        "output.p99_ms <= 60000": True,
    }
    assert report["mean_bytes"] == {"input": 5.0, "output": 5.0}
    assert 'failures="2"' in (tmp_path / "junit.xml").read_text()
    assert [each.name for each in (tmp_path / "data").iterdir()] == []


def test_a_limited_time_from_the_beginning_judges_what_was_there_before_it(broker, tmp_path):
    make_topics(broker.bootstrap, **{"past-in": 2, "past-out": 2})
    path, port = watch_file(tmp_path, broker, "past"), free_port()
    send(broker, "past", 500)
    more = ["--duration", "8", "--report", str(tmp_path / "report.json")]
    with exported(path, tmp_path, port, *more) as process:
        assert process.wait(DEADLINE_S) == 1, (tmp_path / "output").read_text()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["valid"]
    found = report["pipelines"]["past"]["stages"]["output"]["verdicts"]
    assert {verdict: count for verdict, count in found.items() if count} == {
        "exact": 450,
        "missing": 50,
        "duplicate": 20,
    }
    span = report["conclusion"]["watch"]
    lasted_s = (span["until_ms"] - span["from_ms"]) / 1000
    assert 8 <= lasted_s < DEADLINE_S + 1
    assert report["input"]["records_per_second"] == pytest.approx(500 / lasted_s)


def test_a_problem_is_told_once_and_the_watch_begins_when_it_is_over(broker, tmp_path):
    path, port = watch_file(tmp_path, broker, "later"), free_port()
    with exported(path, tmp_path, port) as process:
        text = "It is not running: topic later-in does not exist"
        await_that(process, tmp_path, lambda: text in get(port, "/"))
        with pytest.raises(urllib.error.HTTPError):
            get(port, "/health/ready")
        make_topics(broker.bootstrap, **{"later-in": 1, "later-out": 1})
        await_that(process, tmp_path, lambda: get(port, "/health/ready") == "ready\n")
    lines = (tmp_path / "output").read_text().splitlines()
    assert lines.count("Problem: topic later-in does not exist") == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--listen", "example"], "tidegauge: --listen must be an IPv4 address of this machine, "),
        (["--otlp", "localhost"], "tidegauge: --otlp must be the address of a collector, "),
        (["--detach"], "tidegauge: --export and --detach: an export is a process of its own."),
        (["--threshold", "missing <= 0"], "tidegauge: --threshold needs --duration S; "),
    ],
)
def test_wrong_options_are_one_sentence(broker, tmp_path, more, reason):
    path = watch_file(tmp_path, broker, "refused")
    done = subprocess.run(
        command(path, tmp_path, free_port(), *more),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(reason)
    assert done.stderr.count("\n") == 1


def test_one_watch_is_exported_by_one_process(broker, tmp_path):
    path, port = watch_file(tmp_path, broker, "single"), free_port()
    make_topics(broker.bootstrap, **{"single-in": 1, "single-out": 1})
    with exported(path, tmp_path, port) as process:
        await_that(process, tmp_path, lambda: get(port, "/health/live") == "live\n")
        for other, reason in ((free_port(), "is exported by another process"), (port, "port")):
            done = subprocess.run(
                command(path, tmp_path, other),
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 2
            assert reason in done.stderr


def test_an_interrupt_ends_a_limited_time_with_its_report(broker, tmp_path):
    make_topics(broker.bootstrap, **{"cut-in": 1, "cut-out": 1})
    path, port = watch_file(tmp_path, broker, "cut", begin="now"), free_port()
    report = tmp_path / "report.json"
    with exported(path, tmp_path, port, "--duration", "600", "--report", str(report)) as process:
        await_that(process, tmp_path, lambda: get(port, "/health/ready") == "ready\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert json.loads(report.read_text())["workload"] == "cut"
