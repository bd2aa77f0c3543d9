"""One Spark session for all tests of stage logic."""

import pytest

from tests.traffic import TRAFFIC


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A local session with a driver's settings, for static data."""
    from services.spark_pipeline.session import open_session, spark_conf
    from services.spark_pipeline.settings import SparkPipeline, SparkSettings

    pipeline = SparkPipeline(
        name="p", summary="-", engine="spark", mode="micro-batch", implementation="customised"
    )
    scratch = tmp_path_factory.mktemp("spark")
    conf = spark_conf(pipeline, TRAFFIC, ("join",), 1, settings=SparkSettings(), scratch=scratch)
    session = open_session("tests", conf | {"spark.master": "local[2]"}, scratch)
    yield session
    session.stop()
