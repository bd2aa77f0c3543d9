"""One run that several modules look at."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.command import CommandLine, Seen
from tests.end_to_end.workload_files import patient_workload
from tests.integration.kafka_broker import free_base_port
from tests.listening import all_on_loopback

BASE_PORT = free_base_port()
PIPELINES = ("spark-realtime", "spark-microbatch", "external-python")
MEASURE_S = 6
RATE = 100
SECRET = "only for this test"
SECRET_CONF = {"spark.hadoop.fs.s3a.secret.key": SECRET}


@dataclass(frozen=True)
class Finished:
    """A finished run, whose stack is down. seen: the processes that existed meanwhile."""

    command: CommandLine
    report: dict[str, Any]
    seen: set[Seen]

    @property
    def data(self) -> Path:
        """The data folder, which only its own mode keeps other users out of."""
        return self.command.data

    @property
    def place(self) -> Path:
        """The folder above it, which is open to everyone and has the report."""
        return self.data.parent


@pytest.fixture(scope="session")
def finished() -> Iterator[Finished]:
    """A short run of PIPELINES on the same input. The data folder has a space and an umlaut in its
    name."""
    place = Path(tempfile.mkdtemp(prefix="tidegauge-run-"))
    place.chmod(0o755)
    command = CommandLine(place / "dätä folder", BASE_PORT)
    path = place / "report.json"
    try:
        with command.watched() as seen, all_on_loopback(command.all_processes):
            done = command(
                *("run", str(patient_workload(place)), "--pipeline", ",".join(PIPELINES)),
                *("--rate", str(RATE), "--warm-up", "4", "--duration", str(MEASURE_S)),
                *("--report", str(path)),
                TIDEGAUGE_SPARK_CONF=json.dumps(SECRET_CONF),
                LC_ALL="C",
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "VALID: every expected output was published once, exact and in time." in done.stdout
        yield Finished(command, json.loads(path.read_text()), seen)
    finally:
        command("down")  # an aborted run leaves its stack running
        shutil.rmtree(place)
