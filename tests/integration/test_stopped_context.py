"""Spark stops its SparkContext in a running driver, which ends as a killed one and tells why."""

import json
import subprocess
import sys

import pytest

from services.runner.processes import last_meaningful_line
from services.runner.session import engine_plan
from services.runtime.settings import ROOT
from tests.integration.test_spark_pipeline import START_DEADLINE_S, a_plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2 * START_DEADLINE_S)]

# The driver; Spark's scheduler fails once it is ready: its event loop calls onError.
DRIVER = """
import sys
from pyspark.sql import SparkSession
from services.spark_pipeline import driver

watch = driver.watch

def failing(queries, stop, say_ready, report, **options):
    def then_fail():
        say_ready()
        context = SparkSession.getActiveSession().sparkContext
        error = context._jvm.java.lang.IllegalStateException("on purpose")
        context._jsc.sc().dagScheduler().eventProcessLoop().onError(error)
    return watch(queries, stop, then_fail, report, **options)

driver.watch = failing
sys.exit(driver.main())
"""


def test_a_driver_whose_context_is_stopped_ends_without_a_failed_query_and_tells_the_cause(
    broker, tmp_path
):
    plan, path = a_plan(broker, "stopped", ["spark-microbatch"]), tmp_path / "plan.json"
    (pipeline,) = plan.request.pipelines
    folder = tmp_path / "runs" / "stopped"
    path.write_text(engine_plan(plan, pipeline, folder, broker).model_dump_json())
    log = tmp_path / "driver.log"
    with log.open("wb") as errors:
        done = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        told = done.stdout.read()
        code = done.wait(START_DEADLINE_S)
        done.stdin.close()
        done.stdout.close()
    assert code == 1, log.read_text()
    events = [json.loads(line)["event"] for line in told.decode().splitlines()]
    assert events[0] == "ready"
    assert "failed" not in events
    line = last_meaningful_line(log.read_text())
    assert "Spark stopped its SparkContext" in line
    assert "IllegalStateException: on purpose" in line
