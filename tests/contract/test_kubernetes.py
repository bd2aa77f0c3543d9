"""`deploy/kubernetes` checked against the published schemas and the services' settings."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.local.broker import access_properties
from services.collector.settings import CollectorSettings
from services.generator.settings import GeneratorSettings
from services.runtime.ports import DEFAULT_BASE_PORT, PORT_OFFSETS
from services.runtime.settings import ROOT, ServiceSettings
from tests.command_line import parsed
from tests.contract.compose import PARTS, value_of
from tests.contract.kustomize import Resource, build
from tests.contract.service_settings import SETTINGS, service_of, unknown_settings

pytestmark = pytest.mark.contract

FOLDER = ROOT / "deploy" / "kubernetes"
PUBLISHED = Path(__file__).parent / "published"
BASE = build(FOLDER / "base")
FIVE = build(FOLDER / "five-brokers")
EXECUTORS = build(FOLDER / "executors")
SIMPLE = build(FOLDER / "simple")
RUN: Resource = yaml.safe_load((FOLDER / "run.yaml").read_text())


def closed(schema: Any) -> Any:
    """A schema of a custom resource that rejects unknown fields, as the API server's strict
    validation does."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # Branches of `oneOf` and the like describe combinations and define no fields.
    branches = {"allOf", "anyOf", "not", "oneOf"}
    inner = {name: each if name in branches else closed(each) for name, each in schema.items()}
    open_ended = (
        schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in inner
    )
    if isinstance(schema.get("properties"), dict) and not open_ended:
        inner["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        inner["type"] = ["integer", "string"]
    return inner


def schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """JSON schema by apiVersion and kind."""
    kubernetes = json.loads((PUBLISHED / "kubernetes-1.34.json").read_text())
    found = {}
    for name, schema in kubernetes["definitions"].items():
        kinds = schema.get("properties", {}).get("kind", {}).get("enum")
        if kinds:
            version = schema["properties"]["apiVersion"]["enum"][0]
            reference = {"$ref": f"#/definitions/{name}", "definitions": kubernetes["definitions"]}
            found[version, kinds[0]] = reference
    for name in ("strimzi-1.3.json", "clickhouse-operator.json"):
        for each in json.loads((PUBLISHED / name).read_text()):
            schema = closed(each["schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            found[each["apiVersion"], each["kind"]] = schema
    return found


SCHEMAS = schemas()


def errors(resource: Resource) -> list[str]:
    schema = SCHEMAS[resource["apiVersion"], resource["kind"]]
    found = jsonschema.Draft202012Validator(schema).iter_errors(resource)
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


@pytest.mark.parametrize(
    "resource",
    [*BASE, *FIVE, *EXECUTORS, *SIMPLE, RUN],
    ids=lambda r: f"{r['kind']}-{r['metadata'].get('name', 'run')}",
)
def test_every_resource_is_what_its_schema_says(resource: Resource) -> None:
    assert errors(resource) == []


def test_the_schemas_refuse_what_is_misspelt() -> None:
    for kind in ("Deployment", "Kafka", "ClickHouseInstallation", "KafkaNodePool"):
        resource = json.loads(json.dumps(next(each for each in FIVE if each["kind"] == kind)))
        resource["spec"]["replicaz"] = 3
        assert errors(resource) != [], kind


def pods(resources: list[Resource]) -> dict[str, dict[str, Any]]:
    """Pod specs by the name of their controller."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in resources
        if each["kind"] in ("Deployment", "StatefulSet")
    }


def ours(resources: list[Resource]) -> dict[str, dict[str, Any]]:
    """The single container of each service of this repository, by service."""
    found = {name.replace("-", "_"): pod for name, pod in pods(resources).items()}
    return {name: pod["containers"][0] for name, pod in found.items() if name in SETTINGS}


def named(resources: list[Resource], kind: str, name: str) -> Resource:
    return next(
        each for each in resources if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def test_every_service_runs_its_command_and_answers_on_its_port() -> None:
    assert set(ours(BASE)) == set(SETTINGS) - {"console"}
    for service, container in ours(BASE).items():
        assert service_of(container["command"]) == service
        assert (ROOT / "services" / service / "__main__.py").is_file()
        port = DEFAULT_BASE_PORT + PORT_OFFSETS[service]
        assert container["ports"][0] == {"name": "http", "containerPort": port}
        assert len(container["ports"]) == 1 or service == "gateway"
        assert container["readinessProbe"]["httpGet"] == {"path": "/health/ready", "port": "http"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/health/live", "port": "http"}
        ports = named(BASE, "Service", service.replace("_", "-"))["spec"]["ports"]
        assert ports[0] == {"name": "http", "port": port, "targetPort": "http"}


def test_the_generator_finds_the_gateway_by_tcp_and_by_udp(monkeypatch) -> None:
    (told,) = (
        one["value"]
        for one in ours(BASE)["generator"]["env"]
        if one["name"] == "TIDEGAUGE_GENERATOR_GATEWAY"
    )
    monkeypatch.setenv("TIDEGAUGE_GENERATOR_GATEWAY", told)
    frames = DEFAULT_BASE_PORT + PORT_OFFSETS["gateway_frames"]
    assert GeneratorSettings().gateway_address == ("gateway", frames)
    listens = ours(BASE)["gateway"]["ports"][1:]
    assert [(one["containerPort"], one.get("protocol", "TCP")) for one in listens] == [
        (frames, "TCP"),
        (frames, "UDP"),
    ]
    served = named(BASE, "Service", "gateway")["spec"]["ports"][1:]
    assert [(one["port"], one.get("protocol", "TCP"), one["targetPort"]) for one in served] == [
        (frames, "TCP", "frames"),
        (frames, "UDP", "datagrams"),
    ]
    assert {one["name"] for one in listens} == {"frames", "datagrams"}


@pytest.mark.parametrize(
    "resources",
    [BASE, FIVE, EXECUTORS, SIMPLE],
    ids=["base", "five-brokers", "executors", "simple"],
)
def test_every_setting_is_one_of_the_service_that_gets_it(resources: list[Resource]) -> None:
    shared = set(named(resources, "ConfigMap", "tidegauge-settings")["data"])
    for service, container in ours(resources).items():
        names = {each["name"] for each in container.get("env", [])}
        assert unknown_settings(service, names | shared) == set(), service
        assert container["envFrom"] == [{"configMapRef": {"name": "tidegauge-settings"}}]


def test_everything_is_bounded_and_mounts_what_is_there() -> None:
    for name, pod in [*pods(BASE).items(), *pods(EXECUTORS).items(), *pods(SIMPLE).items()]:
        for container in pod["containers"]:
            assert set(container["resources"]["limits"]) == {"cpu", "memory"}, name
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        claimed = named_claims([*BASE, *SIMPLE], name)
        assert mounted <= {volume["name"] for volume in pod["volumes"]} | claimed, name
    kinds = {
        each["spec"].get("type", "ClusterIP")
        for each in [*BASE, *SIMPLE]
        if each["kind"] == "Service"
    }
    assert kinds == {"ClusterIP"}


def named_claims(resources: list[Resource], name: str) -> set[str]:
    """Volume claims that a StatefulSet of this name creates for each of its pods."""
    found = [
        each
        for each in resources
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == name
    ]
    claims = found[0]["spec"].get("volumeClaimTemplates", []) if found else []
    return {claim["metadata"]["name"] for claim in claims}


def test_secrets_are_files_of_one_secret_that_make_secrets_makes() -> None:
    text = "".join(path.read_text() for path in sorted(FOLDER.rglob("*.yaml")))
    assert set(re.findall(r"secretName: ([\w-]+)", text)) == {"tidegauge-passwords"}
    script = (ROOT / "deploy" / "compose" / "make-secrets.sh").read_text()
    for key in re.findall(r"passwords, .*subPath: (\w+)|/run/secrets/tidegauge/(\w+)", text):
        assert "".join(key) in script


@pytest.mark.parametrize("resources", [BASE, FIVE], ids=["base", "five-brokers"])
def test_the_broker_lets_in_whom_the_local_one_does(
    resources: list[Resource], tmp_path: Path
) -> None:
    local = access_properties(ServiceSettings(data=tmp_path))
    kafka = named(resources, "Kafka", "tidegauge")["spec"]["kafka"]
    # Strimzi: StandardAuthorizer, and `User:` before each name.
    users = str(local["super.users"]).replace("User:", "").split(";")
    assert kafka["authorization"] == {"type": "simple", "superUsers": users}
    opened, closed_one = kafka["listeners"]
    assert (opened["name"], opened["port"], opened["tls"]) == ("open", 9092, False)
    assert "authentication" not in opened
    assert (closed_one["name"], closed_one["port"], closed_one["tls"]) == ("internal", 9094, False)
    prefix = "listener.name.internal."
    own = str(local[f"{prefix}plain.sasl.jaas.config"]).split()
    password = (tmp_path / "secrets" / "kafka-broker").read_text().strip()
    # The brokers authenticate to each other by certificate, so they need no name here.
    login = f"{own[0]} required {own[-1]}".replace(password, "${files:/mnt/passwords:kafka_broker}")
    assert closed_one["authentication"] == {
        "type": "custom",
        "sasl": True,
        "listenerConfig": {
            name.removeprefix(prefix): login if "plain" in name else value
            for name, value in local.items()
            if name.startswith(prefix)
        },
    }
    config = kafka["config"]
    assert config["config.providers"] == "files"
    assert config["config.providers.files.param.allowed.paths"] == "/mnt"
    (mount,) = named(resources, "KafkaNodePool", "brokers")["spec"]["template"]["kafkaContainer"][
        "volumeMounts"
    ]
    assert mount["mountPath"] == "/mnt/passwords"
    settings = named(resources, "ConfigMap", "tidegauge-settings")["data"]
    assert settings["TIDEGAUGE_KAFKA_BOOTSTRAP"] == "tidegauge-kafka-bootstrap:9094"
    assert settings["TIDEGAUGE_KAFKA_OPEN_BOOTSTRAP"] == "tidegauge-kafka-bootstrap:9092"


def test_a_job_tells_the_brokers_who_may_do_what() -> None:
    job = named(BASE, "Job", "access")["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "deploy.kafka"]
    assert container["image"] == ours(BASE)["conductor"]["image"]
    assert container["envFrom"] == [{"configMapRef": {"name": "tidegauge-settings"}}]
    data = named(BASE, "ConfigMap", "tidegauge-settings")["data"]["TIDEGAUGE_DATA"]
    mounts = {
        each["mountPath"]: each.get("subPath")
        for each in container["volumeMounts"]
        if each["name"] == "passwords"
    }
    assert mounts == {
        f"{data}/secrets/kafka": "kafka",
        f"{data}/secrets/kafka-broker": "kafka_broker",
    }
    # It is retried while the brokers start, and runs again when it is applied again.
    assert (job["template"]["spec"]["restartPolicy"], job["backoffLimit"]) == ("OnFailure", 20)
    assert job["ttlSecondsAfterFinished"] == 3600


@pytest.mark.parametrize(
    "resources", [BASE, EXECUTORS, SIMPLE], ids=["base", "executors", "simple"]
)
def test_every_service_finds_its_secret_of_kafka(resources: list[Resource]) -> None:
    data = named(resources, "ConfigMap", "tidegauge-settings")["data"]["TIDEGAUGE_DATA"]
    containers = [*ours(resources).values(), RUN["spec"]["template"]["spec"]["containers"][0]]
    for container in containers:
        mounts = {each["mountPath"]: each.get("subPath") for each in container["volumeMounts"]}
        assert mounts[f"{data}/secrets/kafka"] == "kafka", container["name"]


def test_the_simple_variant_has_all_services_and_no_resource_of_an_operator() -> None:
    assert set(ours(SIMPLE)) == set(ours(BASE))
    assert set(pods(SIMPLE)) == set(pods(BASE)) - {"grafana"} | {"kafka"}
    assert {each["apiVersion"].partition("/")[0] for each in SIMPLE} == {
        "apps",
        "batch",
        "networking.k8s.io",
        "v1",
    }
    # The store of the base has a server.
    for service, count in (("store", 3), ("collector", 1)):
        left, whole = (ours(each)[service].get("env", []) for each in (SIMPLE, BASE))
        assert [each for each in whole if each not in left] == whole[:count]
    assert not [mount for mount in ours(SIMPLE)["store"]["volumeMounts"] if "server" in str(mount)]


def test_the_broker_of_the_simple_variant_has_the_settings_of_compose() -> None:
    here = named(SIMPLE, "ConfigMap", "kafka-settings")["data"]
    there = {
        name: value_of(text).replace("$$", "$").replace("/run/secrets", "/run/secrets/tidegauge")
        for name, text in PARTS["kafka"]["environment"].items()
    }
    assert here.pop("CLUSTER_ID") != there.pop("CLUSTER_ID")
    assert here == there
    pod = pods(SIMPLE)["kafka"]
    container = pod["containers"][0]
    assert container["envFrom"] == [{"configMapRef": {"name": "kafka-settings"}}]
    assert container["image"] == value_of(PARTS["kafka"]["image"])
    assert f"{pod['securityContext']['runAsUser']}:1000" == PARTS["kafka"]["user"]
    # The image takes every variable KAFKA_… as a property, also those of Services.
    assert pod["enableServiceLinks"] is False
    written = {mount["mountPath"] for mount in container["volumeMounts"] if "readOnly" not in mount}
    temporary = {each.partition(":")[0] for each in PARTS["kafka"]["tmpfs"]}
    assert written == {*temporary, here["KAFKA_LOG_DIRS"]}
    service = named(SIMPLE, "Service", "kafka")["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    settings = named(SIMPLE, "ConfigMap", "tidegauge-settings")["data"]
    of_compose = PARTS["conductor"]["environment"]
    assert settings == {name: of_compose[name] for name in settings}


def test_topics_are_left_to_the_conductor() -> None:
    # Only the conductor can ensure that one broker leads all partitions of inputs and outputs.
    assert {each["kind"] for each in FIVE} & {"KafkaTopic", "KafkaRebalance"} == set()
    kafka = named(FIVE, "Kafka", "tidegauge")
    assert kafka["spec"]["kafka"]["config"]["auto.create.topics.enable"] is False
    assert not {"cruiseControl", "entityOperator"} & set(kafka["spec"])


def test_five_brokers_keep_three_copies_and_several_processes_share_the_work() -> None:
    assert named(FIVE, "KafkaNodePool", "brokers")["spec"]["replicas"] == 5
    assert named(FIVE, "KafkaNodePool", "brokers")["spec"]["roles"] == ["broker"]
    assert named(FIVE, "KafkaNodePool", "controllers")["spec"]["replicas"] == 3
    settings = named(FIVE, "ConfigMap", "tidegauge-settings")["data"]
    assert settings["TIDEGAUGE_REPLICATION"] == "3"
    assert settings["TIDEGAUGE_INPUT_PARTITIONS"] == "20"
    for resources, service, count in (
        (BASE, "generator", 1),
        (FIVE, "generator", 5),
        (BASE, "evaluator", 1),
        (FIVE, "evaluator", 2),
    ):
        env = {each["name"]: each for each in ours(resources)[service]["env"]}
        prefix = f"TIDEGAUGE_{service.upper()}_INSTANCE"
        assert named(resources, "StatefulSet", service)["spec"]["replicas"] == count
        assert env[f"{prefix}_COUNT"]["value"] == str(count)
        path = env[f"{prefix}_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == "metadata.labels['apps.kubernetes.io/pod-index']"


def test_the_run_job_is_a_command_that_the_console_understands() -> None:
    container = RUN["spec"]["template"]["spec"]["containers"][0]
    assert service_of(container["command"]) == "console"
    verb, options = parsed(container["args"])
    assert (verb, options["workload"], options["duration"]) == ("run", "latency", 60)
    env = {each["name"]: each["value"] for each in container["env"]}
    assert unknown_settings("console", set(env)) == set()
    host, port = env["TIDEGAUGE_STORE_URL"].removeprefix("http://").split(":")
    assert named(BASE, "Service", host)["spec"]["ports"][0]["port"] == int(port)


def test_the_conductor_can_ask_the_store_and_keep_its_notes() -> None:
    container = ours(BASE)["conductor"]
    (asked,) = [each["value"] for each in container["env"]]
    host, port = asked.removeprefix("http://").split(":")
    assert named(BASE, "Service", host)["spec"]["ports"][0]["port"] == int(port)
    data = named(BASE, "ConfigMap", "tidegauge-settings")["data"]["TIDEGAUGE_DATA"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert "readOnly" not in mounts[data]
    volumes = {each["name"]: each for each in pods(BASE)["conductor"]["volumes"]}
    claim = volumes[mounts[data]["name"]]["persistentVolumeClaim"]["claimName"]  # persistent
    assert named(BASE, "PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert mounts[f"{data}/secrets/clickhouse-reader"]["subPath"] == "clickhouse_reader"


@pytest.mark.parametrize("resources", [BASE, FIVE], ids=["base", "five-brokers"])
def test_the_collector_scrapes_the_exporter_of_every_broker(resources: list[Resource]) -> None:
    cluster = named(resources, "Kafka", "tidegauge")
    given = cluster["spec"]["kafka"]["metricsConfig"]["valueFrom"]["configMapKeyRef"]
    assert (ROOT / "deploy" / "kafka" / given["key"]).is_file()
    made = f"create configmap {given['name']} --from-file=deploy/kafka/{given['key']}\n"
    assert made in (ROOT / "deploy" / "README.md").read_text()
    pool = named(resources, "KafkaNodePool", "brokers")
    assert pool["metadata"]["annotations"] == {"strimzi.io/next-node-ids": "[0-99]"}
    (told,) = ours(resources)["collector"]["env"]
    assert told["name"] == "TIDEGAUGE_COLLECTOR_TARGETS"
    targets = json.loads(told["value"])
    settings = CollectorSettings(kafka_bootstrap="k:9092", collector_targets=targets)
    # Strimzi: CLUSTER-POOL-ID.CLUSTER-kafka-brokers, port 9404.
    assert {name: target.url for name, target in settings.targets.items()} == {
        f"broker-{number}": "http://tidegauge-brokers-"
        f"{number}.tidegauge-kafka-brokers:9404/metrics"
        for number in range(pool["spec"]["replicas"])
    }
