"""Every pod of deploy/kubernetes satisfies the Pod Security Standard `restricted`, with a read-only
file system, no token, and only its own secret."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest
import yaml

from services.runtime.settings import ROOT
from tests.contract.kustomize import Resource
from tests.contract.test_kubernetes import BASE, EXECUTORS, FIVE, RUN, SIMPLE, named

pytestmark = pytest.mark.contract

TEMPLATE: Resource = yaml.safe_load(named(EXECUTORS, "ConfigMap", "spark")["data"]["executor.yaml"])
SECRETS = {
    "access": {"kafka", "kafka_broker"},
    "brokers": {"kafka_broker"},
    "collector": {"kafka"},
    "conductor": {"kafka", "clickhouse_reader"},
    "console": {"kafka", "clickhouse_reader"},
    "evaluator": {"kafka"},
    "gateway": {"kafka"},
    "generator": {"kafka"},
    "grafana": {"clickhouse_reader", "grafana_admin"},
    "kafka": {"kafka_broker"},
    "runner": {"kafka"},
    "store": {"kafka", "clickhouse_admin", "clickhouse_reader", "clickhouse_server"},
    "watcher": {"kafka"},
}
# These follow links when reading; a service rejects them.
AS_FOLDERS = {"brokers", "grafana", "kafka"}
ASKS_THE_API = {("tidegauge-spark", "runner")}  # creates its executors


@dataclass(frozen=True)
class Pod:
    """A pod created by a resource of deploy/kubernetes; spec as in Kubernetes."""

    namespace: str
    name: str
    spec: dict[str, Any]
    made_by: str


def pods_of(resource: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, spec) of the pods that a resource creates."""
    name, spec = resource["metadata"].get("name", "executor"), resource.get("spec", {})
    match resource["kind"]:
        case "Deployment" | "StatefulSet" | "Job":
            yield (
                spec["template"]["metadata"]["labels"]["app.kubernetes.io/name"],
                spec["template"]["spec"],
            )
        case "Pod":
            yield name, spec
        case "KafkaNodePool":
            template = spec["template"]
            kafka = {"name": "kafka", **template["kafkaContainer"]}
            yield name, {"volumes": [], **template["pod"], "containers": [kafka]}
        case "ClickHouseInstallation":
            for each in spec["templates"]["podTemplates"]:
                yield name, each["spec"]


def every_pod() -> list[Pod]:
    return [
        Pod(resource["metadata"].get("namespace", "tidegauge-spark"), name, spec, resource["kind"])
        for resource in [*BASE, *FIVE, *EXECUTORS, *SIMPLE, RUN, TEMPLATE]
        for name, spec in pods_of(resource)
    ]


PODS = every_pod()
EVERY = pytest.mark.parametrize("pod", PODS, ids=[f"{each.namespace}-{each.name}" for each in PODS])


def test_no_kind_that_makes_pods_is_passed_over() -> None:
    makes_none = {
        "ConfigMap",
        "Kafka",  # its node pools do
        "Namespace",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    }
    makes = {each.made_by for each in PODS}
    assert {each["kind"] for each in [*BASE, *FIVE, *EXECUTORS, *SIMPLE, RUN]} | {
        "Pod"
    } == makes | makes_none
    assert len({each.name for each in PODS}) == 16


@EVERY
def test_a_pod_is_restricted(pod: Pod) -> None:
    context = pod.spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context.get("runAsUser") != 0
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod.spec)
    kinds = {kind for volume in pod.spec["volumes"] for kind in set(volume) - {"name"}}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
    for container in pod.spec["containers"]:
        given = container["securityContext"]
        assert given["allowPrivilegeEscalation"] is False
        assert given["readOnlyRootFilesystem"] is True
        assert given["capabilities"] == {"drop": ["ALL"]}
        assert not {"privileged", "procMount", "runAsUser", "seLinuxOptions"} & set(given)
        if pod.made_by != "KafkaNodePool":  # Strimzi mounts the volume that Kafka writes to
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@EVERY
def test_a_pod_has_a_token_only_when_it_asks_the_api(pod: Pod) -> None:
    if pod.made_by == "KafkaNodePool":
        return  # a service account of Strimzi without permissions in the namespace
    asks = (pod.namespace, pod.name) in ASKS_THE_API
    assert pod.spec["automountServiceAccountToken"] is asks
    assert pod.spec.get("serviceAccountName") == ("spark" if asks else None)


@EVERY
def test_a_pod_sees_the_secrets_that_it_needs(pod: Pod) -> None:
    own = SECRETS.get(pod.name, set())
    if pod.name == "store" and "TIDEGAUGE_CLICKHOUSE_URL" not in str(pod.spec["containers"]):
        own = own - {"clickhouse_server"}  # it has its own engine
    volumes = [volume for volume in pod.spec["volumes"] if "secret" in volume]
    assert {item["key"] for volume in volumes for item in volume["secret"]["items"]} == own
    for container in pod.spec["containers"]:
        assert "secretRef" not in str(container.get("envFrom"))
        assert "secretKeyRef" not in str(container.get("env"))
        for mount in container.get("volumeMounts", []):
            if mount["name"] in {volume["name"] for volume in volumes}:
                assert mount.get("subPath") in own or pod.name in AS_FOLDERS
                assert mount["readOnly"] is True


def test_every_namespace_enforces_it() -> None:
    every = [*BASE, *FIVE, *EXECUTORS, *SIMPLE]
    namespaces = [each for each in every if each["kind"] == "Namespace"]
    enforced = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in namespaces
    }
    assert enforced == {"tidegauge": "restricted", "tidegauge-spark": "restricted"}
    for resources in (BASE, EXECUTORS, SIMPLE):
        assert (
            named(resources, "ServiceAccount", "default")["automountServiceAccountToken"] is False
        )


def test_who_may_make_pods_finds_no_secret_in_its_namespace_but_its_own() -> None:
    """A pod can mount any secret of its namespace, whatever its creator may read. The pod with the
    token authenticates to Kafka itself."""
    rights = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert not rights & {each["kind"] for each in [*BASE, *FIVE, *SIMPLE]}
    assert rights & {each["kind"] for each in EXECUTORS} == {"Role", "RoleBinding"}
    (rule,) = named(EXECUTORS, "Role", "spark-driver")["rules"]
    allowed = ["pods", "configmaps", "services", "persistentvolumeclaims"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], allowed)
    (subject,) = named(EXECUTORS, "RoleBinding", "spark-driver")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "spark", "namespace": "tidegauge-spark"}
    holders = {(pod.namespace, pod.name) for pod in PODS if SECRETS.get(pod.name)}
    assert {each for each in holders if each[0] != "tidegauge"} == ASKS_THE_API
    page = (ROOT / "deploy" / "README.md").read_text()
    made = "create secret generic tidegauge-passwords --from-file="
    assert [line for line in page.splitlines() if "create secret" in line] == [
        f"kubectl -n tidegauge {made}deploy/compose/secrets",
        f"kubectl -n tidegauge-spark {made}deploy/compose/secrets/kafka",
    ]


def test_the_owner_of_the_tables_does_not_come_from_anywhere() -> None:
    users = named(BASE, "ClickHouseInstallation", "tidegauge")["spec"]["configuration"]["users"]
    shared = ip_network("100.64.0.0/10")  # some clouds assign these to pods
    ranges = [ip_network(each) for each in users["tidegauge_owner/networks/ip"]]
    assert ranges
    assert all(each.is_private or each == shared for each in ranges)
    password = users["tidegauge_owner/k8s_secret_password"]
    assert password == "tidegauge/tidegauge-passwords/clickhouse_server"
