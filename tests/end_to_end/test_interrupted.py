"""Ctrl-C in the middle of a run: measurements are kept, and no process remains."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from schemas import catalogue, codec
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import CommandLine
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import Reader

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
DEADLINE_S = 400
EXIT_INTERRUPTED = 130
REASON = "The run was interrupted."


def await_first_measured(settings: ServiceSettings) -> None:
    """Wait until a latency of the measure phase is on the bus."""
    latencies, end = Reader(settings, catalogue.LATENCY), time.monotonic() + DEADLINE_S
    decoded = lambda: (codec.decode(message.value())[1] for message in latencies.messages)  # noqa: E731
    while not any(record["phase"] == "measure" for record in decoded()):
        assert time.monotonic() < end, "nothing was measured"
        latencies.read()
    latencies.close()


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(tmp_path: Path) -> None:
    tidegauge = CommandLine(tmp_path / "stack", BASE_PORT)
    path, output = tmp_path / "report.json", tmp_path / "output.txt"
    options = ("--stages", "1", "--rate", "100", "--warm-up", "0", "--duration", "600")
    run = tidegauge.begin(output, "run", "calibration", *options, "--report", str(path))
    try:
        end = time.monotonic() + DEADLINE_S
        while "measuring" not in output.read_text():
            assert time.monotonic() < end, output.read_text()
            assert run.poll() is None, output.read_text()
            time.sleep(0.1)  # poll interval
        await_first_measured(ServiceSettings(base_port=BASE_PORT, data=tidegauge.data))
        assert len(tidegauge.processes()) > 5  # so that finding none later is meaningful
        os.killpg(run.pid, signal.SIGINT)
        code = run.wait(DEADLINE_S)
    finally:
        if run.poll() is None:
            run.kill()
            tidegauge("down")
    text = output.read_text()
    assert code == EXIT_INTERRUPTED, text
    assert tidegauge.processes() == []
    report = json.loads(path.read_text())
    assert (report["valid"], report["invalid_reasons"]) == (False, [REASON])
    assert (
        report["pipelines"]["calibration"]["stages"]["parse"]["latency_ms"]["latest"]["count"] > 0
    )
    assert f"INVALID: {REASON}" in text
    later = tidegauge("report", report["run_id"], "--json")
    assert json.loads(later.stdout) == report
