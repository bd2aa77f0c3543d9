"""A task throws once for each file, and no other task does."""

import time

import pytest
from pyspark.errors import PySparkException

from services.spark_pipeline.faulty_record import NO_FAULT, watch_file

pytestmark = pytest.mark.unit
ROWS = 1_000


def throws(spark):
    """Whether reading records throws; if not, it reads all."""
    try:
        count = spark.range(ROWS).where(NO_FAULT).count()
    except PySparkException as error:
        return "a faulty record, planted by the workload" in str(error)
    assert count == ROWS
    return False


def test_a_task_throws_once_for_each_file(spark, tmp_path):
    file = tmp_path / "p.raise"
    watch_file(spark, str(file))
    assert not throws(spark)
    for _ in range(2):
        file.touch()
        deadline_s = time.monotonic() + 120
        while not throws(spark):
            assert time.monotonic() < deadline_s
        while file.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert not throws(spark)
