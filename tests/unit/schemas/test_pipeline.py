"""Pipelines: which implementation can do what, and what must not be in one."""

import pytest
from pydantic import ValidationError

from schemas.mistakes import first_mistake
from schemas.pipeline import Pipeline

pytestmark = pytest.mark.unit


def pipeline(**fields):
    return Pipeline.model_validate({"name": "p", "summary": "-", "mode": "micro-batch"} | fields)


@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        ({}, ("ingest", "parse", "join", "tumbling", "sliding")),
        ({"implementation": "state"}, ("join", "tumbling", "sliding")),
        ({"implementation": "stateless", "mode": "continuous"}, ("ingest", "parse")),
        ({"implementation": "state", "stages": ["join"]}, ("join",)),
    ],
)
def test_a_pipeline_has_the_stages_of_its_implementation_unless_it_names_them(fields, stages):
    assert pipeline(**fields).stages == stages


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": "continuous"}, "customised runs in the modes real-time, micro-batch"),
        ({"implementation": "state", "mode": "real-time"}, "state runs in the modes micro-batch"),
        ({"implementation": "state", "stages": ["parse"]}, "state has only the stages join"),
        ({"implementation": "built-in"}, "built-in can only publish incomplete windows"),
        ({"mode": "real-time", "state_store": "hdfs"}, "real-time needs state_store rocksdb"),
        ({"implementation": "state", "state_store": "hdfs"}, "needs state_store rocksdb"),
        ({"incomplete_windows": "publish"}, "customised can only withhold incomplete windows"),
    ],
)
def test_what_an_implementation_cannot_do_is_refused_with_what_it_can(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        pipeline(**fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"spark_conf": {"spark.x": "1", "spark.hadoop.fs.azure.account.key.me": "xyz"}},
         "spark.hadoop.fs.azure.account.key.me"),
        ({"spark_conf": {"spark.executor.extraJavaOptions": "-Dsome.password=xyz"}},
         "spark.executor.extraJavaOptions"),
        ({"jvm_options": ["-Xmx1g", "-Djavax.net.ssl.trustStorePassword=xyz"]},
         "-Djavax.net.ssl.trustStorePassword"),
    ],
)  # fmt: skip
def test_a_secret_is_refused_because_a_run_publishes_its_pipelines(fields, named):
    with pytest.raises(ValidationError) as refused:
        pipeline(**fields)
    sentence = first_mistake(refused.value)
    assert f"{named} looks like a secret" in sentence
    assert "TIDEGAUGE_SPARK_CONF" in sentence
    assert "xyz" not in f"{sentence} {refused.value}"


def test_settings_that_only_sound_like_secrets_are_taken():
    jar = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"
    assert pipeline(spark_conf={"spark.jars.packages": jar}, jvm_options=["-XX:+UseZGC"])
    for name in ("spark.hadoop.fs.s3a.aws.credentials.provider", "hadoop.credential.provider.path"):
        assert pipeline(spark_conf={name: "org.example.Provider"})
