"""The pipelines on a standalone Spark cluster: a master and a worker on this machine."""

import os
import re
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from schemas import catalogue
from schemas.commands import Stop
from schemas.events import PipelineStopped, Ready, ServiceStarted
from services.runtime.events import open_events
from tests.integration.kafka_broker import own_wide_broker  # noqa: F401
from tests.integration.service_process import Reader, running_service
from tests.integration.test_spark_pipeline import (
    START_DEADLINE_S,
    check_outputs,
    of,
    prepare,
    say,
    write,
)

pytestmark = pytest.mark.faults

SPARK_HOME = Path(pyspark.__file__).parent
CORES = 64  # offered regardless of the machine: real-time mode needs a slot per task
PIPELINES = ("spark-realtime", "spark-microbatch")


@contextmanager
def running(name, folder, *arguments):
    """A Spark daemon and its log; stopped at the end of the context."""
    log = folder / f"{name}.log"
    command = ["java", "-Xmx256m", "-cp", f"{SPARK_HOME}/jars/*"]
    command += [f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            # As Spark's own scripts do, some of which are missing in the PyPI package.
            env=os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"},
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def found_in(log, pattern):
    """Wait for the first match of a pattern in a log."""
    end = time.monotonic() + START_DEADLINE_S
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.1)  # poll interval
    return found


@pytest.fixture
def master(tmp_path):
    with running("master.Master", tmp_path, "--port", "0") as master_log:
        url = found_in(master_log, r"Starting Spark master at (spark://\S+)")[1]
        work = ("--cores", str(CORES), "--memory", "4g", "--work-dir", str(tmp_path / "work"))
        with running("worker.Worker", tmp_path, *work, url) as worker_log:
            found_in(worker_log, "Successfully registered with master")
            yield url


def test_every_output_is_exact_on_a_cluster_too(broker, master, tmp_path):
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    before = len(of(lifecycle.everything(""), ServiceStarted.name))
    with running_service(broker, "runner", tmp_path, TIDEGAUGE_SPARK_MASTER=master):
        # It receives commands from then on.
        lifecycle.until("", lambda found: len(of(found, ServiceStarted.name)) > before)
        for name in PIPELINES:
            run_id = f"cluster-{name}"
            prepare(broker, run_id, (name,))
            sent = write(broker, run_id)
            ready = lifecycle.until(run_id, say(Ready.name, name), START_DEADLINE_S)
            assert master in of(ready, Ready.name, name)[0]["detail"]
            check_outputs(broker, name, run_id, sent)
            open_events(broker, "tests").send(Stop(run_id=run_id))
            lifecycle.until(run_id, say(PipelineStopped.name, name))
    lifecycle.close()
