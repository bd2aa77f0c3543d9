"""A suite runs indefinitely: if a conductor is killed during a run, the next one concludes that run
and resumes there.

No other service is running, so every run ends in its preparation. Other tests cover the
measurements of a run.
"""

import json
import signal

import pytest

from schemas import codec
from schemas.events import RunRequested
from services.conductor.orphaned_runs import KILLED
from tests.integration.service_process import Reader, running_service

pytestmark = pytest.mark.integration

SUITE = """
name = "endless"
summary = "Two steps without anybody who would carry them out."
[pace]
pause_s = 0
busy_share = 1
failure_pause_s = 0
[[steps]]
workload = "latency"
pipelines = ["calibration"]
stages = ["parse"]
rates = [100, 200]
"""


class Seen:
    """The runs of the suite on the bus so far, in order."""

    def __init__(self, settings) -> None:
        self._lifecycle = Reader(settings, "results.lifecycle")
        self._conclusions = Reader(settings, "results.conclusions")
        self._before = self._requested()

    def _requested(self):
        self._lifecycle.read()
        found = {}
        for message in self._lifecycle.messages:
            record = codec.decode(message.value())[1]
            if record["event"] == RunRequested.name:
                suite = json.loads(record["detail"]).get("suite")
                if suite and suite["name"] == "endless":
                    found[record["run_id"]] = (suite["round"], suite["step"])
        return found

    def requested(self):
        """(round, step) by run id."""
        return {k: v for k, v in self._requested().items() if k not in self._before}

    def until_requested(self, count):
        """Read until this number of runs has started; returns the id of the newest."""
        deadline = 60
        while len(found := self.requested()) < count:
            deadline -= 0.2  # a read waits a fifth of a second for records
            assert deadline > 0, f"only {found}"
        return list(found)[count - 1]

    def conclusions(self, run_id):
        """The conclusions of a run, after waiting for the first."""
        return self._conclusions.until(run_id, len)

    def close(self):
        self._lifecycle.close()
        self._conclusions.close()


def test_a_conductor_that_is_killed_in_a_run_goes_on_with_it(broker, tmp_path):
    path = tmp_path / "endless.toml"
    path.write_text(SUITE)
    suite = {"TIDEGAUGE_SUITE": str(path), "TIDEGAUGE_STOP_TIMEOUT_S": "0.1"}
    # Long enough to be killed during a preparation, even if that is noticed slowly.
    patient = suite | {"TIDEGAUGE_PREPARE_TIMEOUT_S": "5"}
    quick = suite | {"TIDEGAUGE_PREPARE_TIMEOUT_S": "0.5"}
    seen = Seen(broker)
    try:
        with running_service(broker, "conductor", tmp_path, **patient) as conductor:
            killed = seen.until_requested(3)
            conductor.kill()
            conductor.wait()
        with running_service(broker, "conductor", tmp_path, **quick) as conductor:
            seen.until_requested(5)
            conductor.send_signal(signal.SIGTERM)
            conductor.wait(30)
        requested = seen.requested()
        places = list(requested.values())
        assert places[:5] == [(1, 1), (1, 2), (2, 1), (2, 1), (2, 2)]
        found = {run_id: seen.conclusions(run_id) for run_id in requested}
        assert all(len(conclusions) == 1 for conclusions in found.values())
        assert found[killed][0]["invalid_reasons"] == [KILLED]
        others = [one[0]["invalid_reasons"][0] for run, one in found.items() if run != killed]
        assert all("not ready" in reason for reason in others[:3])
    finally:
        seen.close()
