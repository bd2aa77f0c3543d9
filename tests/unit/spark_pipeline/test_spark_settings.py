"""Spark's master and deployment, from the settings of the service."""

import shlex
from pathlib import Path

import pyspark
import pytest
from pydantic import ValidationError

from services.spark_pipeline.session import _of_own_cluster, runs_elsewhere, spark_conf
from services.spark_pipeline.settings import (
    SparkPipeline,
    SparkSettings,
    forget_secret_variables,
    without_secrets,
)
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

PIPELINE = SparkPipeline(
    name="p",
    summary="-",
    engine="spark",
    mode="real-time",
    jvm_options=("-XX:X",),
    spark_conf={"a": "1", "b": "1"},
)


def conf(**settings):
    return spark_conf(
        PIPELINE,
        TRAFFIC,
        ("parse", "join"),
        2,
        settings=SparkSettings(**settings),
        scratch=Path("/scratch"),
    )


def test_a_local_master_has_the_slots_that_the_queries_need_unless_told_otherwise():
    # Two topics of two partitions for each of two queries, and one shuffle task.
    assert conf()["spark.master"] == "local[9]"
    assert conf(spark_master="local[20]")["spark.master"] == "local[20]"
    assert "spark.cores.max" not in conf()


def test_a_cluster_gives_as_many_cores_as_the_queries_need():
    found = conf(spark_master="spark://host:7077", spark_driver_host="10.0.0.1")
    assert found["spark.master"] == "spark://host:7077"
    assert found["spark.cores.max"] == "9"
    assert found["spark.driver.host"] == "10.0.0.1"
    assert "-XX:X" in found["spark.executor.extraJavaOptions"]
    assert "log4j2" not in found["spark.executor.extraJavaOptions"]


def test_a_cluster_that_the_pipeline_names_itself_is_one_too():
    mine = PIPELINE.model_copy(update={"spark_conf": {"spark.master": "spark://host:7077"}})
    found = spark_conf(
        mine, TRAFFIC, ("parse", "join"), 2, settings=SparkSettings(), scratch=Path("/scratch")
    )
    assert found["spark.cores.max"] == "9"
    assert "avro.limits.string.maxLength" in found["spark.executor.extraJavaOptions"]


@pytest.mark.parametrize(
    ("fields", "settings", "expected"),
    [
        ({"workers": 3}, {}, ("local[3]", None, None)),
        ({"workers": 3}, {"spark_master": "spark://h:7077"}, ("spark://h:7077", "3", "1")),
        ({}, {"spark_master": "spark://h:7077"}, ("spark://h:7077", "9", None)),
        ({"workers": 3, "standalone": True}, {}, ("local-cluster[3,1,1024]", "3", "1")),
        ({"standalone": True}, {}, ("local-cluster[9,1,1024]", "9", None)),
        # It would wait forever for slots for its tasks.
        ({"workers": 3, "standalone": True, "mode": "real-time"}, {}, ("local[9]", None, None)),
    ],
)
def test_batches_have_as_many_workers_as_the_pipeline_says(fields, settings, expected):
    given = PIPELINE.model_copy(update={"mode": "micro-batch"} | fields)
    scratch = Path("/scratch")
    found = spark_conf(
        given, TRAFFIC, ("parse", "join"), 2, settings=SparkSettings(**settings), scratch=scratch
    )
    names = ("spark.master", "spark.cores.max", "spark.executor.cores")
    assert tuple(found.get(name) for name in names) == expected


def test_workers_of_ones_own_cluster_write_in_the_folder_of_the_run_and_stay_on_loopback(tmp_path):
    found = _of_own_cluster("127.0.0.1", tmp_path)
    home = Path(found.pop("SPARK_HOME"))
    assert found == {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    assert home.parent == tmp_path
    assert sorted((home / "jars").glob("spark-core_*.jar"))
    (home / "work").mkdir()
    assert not (Path(pyspark.__path__[0]) / "work").exists()


@pytest.mark.parametrize(
    ("standalone", "settings", "expected"),
    [
        (False, {}, False),
        (True, {}, False),  # executors of its own cluster are children of the driver
        (False, {"spark_master": "local[20]"}, False),
        (False, {"spark_master": "spark://host:7077"}, True),
        (True, {"spark_conf": {"spark.master": "k8s://host"}}, True),
    ],
)
def test_executors_run_elsewhere_on_the_cluster_of_somebody_else(standalone, settings, expected):
    given = PIPELINE.model_copy(update={"mode": "micro-batch", "standalone": standalone})
    found = spark_conf(
        given, TRAFFIC, ("join",), 1, settings=SparkSettings(**settings), scratch=Path("/scratch")
    )
    assert runs_elsewhere(found["spark.master"]) is expected


def test_what_the_jvm_leaves_behind_goes_with_the_folder_of_the_run():
    found = spark_conf(
        PIPELINE, TRAFFIC, ("parse",), 1, settings=SparkSettings(), scratch=Path("/with a blank")
    )
    assert '"-Djava.io.tmpdir=/with a blank"' in found["spark.driver.extraJavaOptions"]
    assert found["spark.local.dir"] == "/with a blank"


@pytest.mark.parametrize(
    ("master", "is_here"), [("", True), ("spark://host:7077", False), ("k8s://host", False)]
)
def test_what_jvms_of_ones_own_cluster_leave_behind_goes_with_the_folder_too(master, is_here):
    own = PIPELINE.model_copy(update={"mode": "micro-batch", "standalone": True})
    settings, scratch = SparkSettings(spark_master=master), Path("/a run/scratch")
    found = spark_conf(own, TRAFFIC, ("parse",), 1, settings=settings, scratch=scratch)
    for whose, has_it in (("driver", True), ("executor", is_here)):
        options = shlex.split(found[f"spark.{whose}.extraJavaOptions"])
        assert ("-Djava.io.tmpdir=/a run/scratch" in options) == has_it
        assert ("-XX:ErrorFile=/a run/hs_err_%p.log" in options) == has_it


def test_settings_win_over_the_pipeline_and_the_pipeline_over_the_defaults():
    found = conf(spark_conf={"b": "2", "spark.ui.enabled": "true"})
    assert (found["a"], found["b"], found["spark.ui.enabled"]) == ("1", "2", "true")


def test_checkpoints_elsewhere_are_written_as_spark_does_by_default():
    name = "spark.sql.streaming.checkpointFileManagerClass"
    assert name in conf()
    assert name not in conf(spark_checkpoints="s3a://bucket/checkpoints")


def test_properties_of_kafka_clients_reach_sources_and_sinks():
    settings = SparkSettings(
        kafka_bootstrap="k:9092", spark_kafka_properties={"security.protocol": "SSL"}
    )
    assert settings.kafka_options("k:9092") == {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SSL",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.ssl.keyPassword", "x"),
        ("spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net", "x"),
        ("spark.hadoop.fs.azure.sas.box.mine.blob.core.windows.net", "x"),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", "x"),
        ("spark.driver.extraJavaOptions", "-Xmx1g -Djavax.net.ssl.trustStorePassword=x"),
        ("spark.executor.extraJavaOptions", '"-Dmy.token = x"'),
        ("spark.x", '{"user": "u", "password": "x"}'),
        ("spark.jars.repositories", "https://user:x@repository/maven"),
    ],
)
def test_secrets_are_not_published(name, value):
    assert without_secrets({name: value, "a": "1"}) == {name: "***", "a": "1"}


def test_what_every_run_publishes_is_not_taken_for_a_secret():
    found = conf(spark_master="spark://host:7077", data="/my-data", jars="/jars")
    found["spark.jars"] = "/jars/spark-token-provider-kafka-0-10_2.13-4.0.0.jar"
    found["spark.jars.packages"] = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"
    found["spark.hadoop.fs.defaultFS"] = "abfss://box@mine.dfs.core.windows.net/"
    assert without_secrets(found) == found


def test_a_master_of_another_kind_is_refused():
    with pytest.raises(ValidationError, match="spark_master"):
        SparkSettings(spark_master="yarn")


@pytest.mark.parametrize(
    "name",
    [
        "spark.driver.defaultJavaOptions",
        "spark.driver.extraJavaOptions",
        "spark.executor.defaultJavaOptions",
        "spark.executor.extraJavaOptions",
    ],
)
def test_a_secret_that_would_be_on_a_command_line_is_refused(name):
    with pytest.raises(ValidationError, match=f"{name} is on the JVM's command line"):
        SparkSettings(spark_conf={name: "-Djavax.net.ssl.trustStorePassword=x"})
    assert SparkSettings(spark_conf={name: "-Xss4m"}).spark_conf == {name: "-Xss4m"}


def test_of_the_environment_the_jvm_gets_everything_but_our_secrets():
    environ = {
        "TIDEGAUGE_SPARK_CONF": "{}",
        "TIDEGAUGE_KAFKA_PROPERTIES": "{}",
        "TIDEGAUGE_SPARK_KAFKA_PROPERTIES": "{}",
        "TIDEGAUGE_DATA": "/data",
        "AWS_SECRET_ACCESS_KEY": "for Spark's own S3 client",
    }
    forget_secret_variables(environ)
    assert sorted(environ) == ["AWS_SECRET_ACCESS_KEY", "TIDEGAUGE_DATA"]


def test_an_archive_of_classes_is_the_drivers_alone():
    found = spark_conf(
        PIPELINE,
        TRAFFIC,
        ("parse",),
        1,
        settings=SparkSettings(spark_master="spark://host:7077"),
        scratch=Path("/scratch"),
        classes=("-Xshare:auto", "-XX:SharedArchiveFile=/with a blank/spark.jsa"),
    )
    assert found["spark.driver.extraJavaOptions"].endswith(
        ' "-Xshare:auto" "-XX:SharedArchiveFile=/with a blank/spark.jsa"'
    )
    assert "-Xshare" not in found["spark.executor.extraJavaOptions"]
