"""`deploy/kubernetes/executors`: Spark with executors as pods, used with `five-brokers`."""

import json

import pytest
import yaml

from services.spark_pipeline.settings import SparkSettings
from tests.contract.test_kubernetes import BASE, EXECUTORS, FIVE, errors, named, ours

pytestmark = pytest.mark.contract


def spark_conf() -> dict[str, str]:
    """Spark's settings with executors as pods, as the agent reads them."""
    env = {each["name"]: each for each in ours(EXECUTORS)["runner"]["env"]}
    given = env["TIDEGAUGE_SPARK_CONF"]["valueFrom"]["configMapKeyRef"]
    text = named(EXECUTORS, "ConfigMap", given["name"])["data"][given["key"]]
    return SparkSettings(kafka_bootstrap="k:9092", spark_conf=json.loads(text)).spark_conf


def test_executors_can_call_the_driver_back() -> None:
    conf = spark_conf()
    service = named(EXECUTORS, "Service", "runner")
    assert service["spec"]["clusterIP"] == "None"
    ports = {each["name"]: str(each["port"]) for each in service["spec"]["ports"]}
    assert ports["driver"] == conf["spark.driver.port"]
    assert ports["blocks"] == conf["spark.driver.blockManager.port"]
    namespace = service["metadata"]["namespace"]
    assert namespace == conf["spark.kubernetes.namespace"] == "tidegauge-spark"
    assert conf["spark.driver.host"] == f"runner-0.runner.{namespace}.svc"
    driver = named(EXECUTORS, "StatefulSet", "runner")
    assert driver["spec"]["serviceName"] == "runner"
    assert conf["spark.kubernetes.driver.pod.name"] == "runner-0"
    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
    data = named(EXECUTORS, "ConfigMap", "tidegauge-settings")["data"]["TIDEGAUGE_DATA"]
    assert conf[f"{claim}.mount.path"] == data
    assert named(EXECUTORS, "PersistentVolumeClaim", conf[f"{claim}.options.claimName"])


def test_executors_are_what_the_template_says() -> None:
    (mount,) = [
        each for each in ours(EXECUTORS)["runner"]["volumeMounts"] if each["name"] == "spark"
    ]
    folder, _, name = spark_conf()["spark.kubernetes.executor.podTemplateFile"].rpartition("/")
    assert folder == mount["mountPath"]
    template = yaml.safe_load(named(EXECUTORS, "ConfigMap", "spark")["data"][name])
    assert errors(template) == []


def test_one_agent_runs_the_pipelines_of_five_brokers() -> None:
    # Two would each start every pipeline of a run.
    assert named(FIVE, "StatefulSet", "runner")["spec"]["replicas"] == 0
    assert named(EXECUTORS, "StatefulSet", "runner")["spec"]["replicas"] == 1
    here, there = (named(each, "ConfigMap", "tidegauge-settings") for each in (FIVE, EXECUTORS))
    kafka = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": "tidegauge-kafka-bootstrap.tidegauge.svc:9094",
        "TIDEGAUGE_KAFKA_OPEN_BOOTSTRAP": "tidegauge-kafka-bootstrap.tidegauge.svc:9092",
    }
    assert there["data"] == here["data"] | kafka


def test_many_can_write_the_checkpoints_where_executors_are_pods() -> None:
    modes = [named(each, "PersistentVolumeClaim", "checkpoints") for each in (BASE, EXECUTORS)]
    assert [each["spec"]["accessModes"] for each in modes] == [["ReadWriteOnce"], ["ReadWriteMany"]]
