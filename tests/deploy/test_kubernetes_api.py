"""`deploy/kubernetes` in an API server: the commands of deploy/README.md, the operators' kinds, and
pods under the Pod Security Standard `restricted`."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes.__main__ import main
from deploy.local.processes import wait_until
from services.runtime.settings import ROOT
from tests.contract.kustomize import Resource, build
from tests.contract.test_kubernetes import FOLDER, PUBLISHED, named
from tests.contract.test_kubernetes_security import TEMPLATE, pods_of
from tests.deploy.api_server import READY_DEADLINE_S, Cluster, CommandError, cluster
from tests.deploy.container_engine import BUILD_TIMEOUT_S
from tests.listening import all_on_loopback, tree

# The first time, the programs are built.
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2 * BUILD_TIMEOUT_S)]

SECRETS = "deploy/compose/secrets"
# No node runs the pods.
LEFT_OUT = ("port-forward", "logs")
NAMESPACES = ("tidegauge", "tidegauge-spark")
DRIVER = "--as=system:serviceaccount:tidegauge-spark:spark"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server that knows the kinds of the operators."""
    folder = tmp_path_factory.mktemp("cluster")
    with all_on_loopback(lambda: tree(os.getpid())), cluster(folder) as server:
        definitions = list(custom_resources())
        for definition in definitions:
            server.create(definition)
        names = [f"crd/{each['metadata']['name']}" for each in definitions]
        server.kubectl("wait", *names, "--for=condition=Established", "--timeout=60s")
        yield server


def custom_resources() -> Iterator[Resource]:
    """The definitions that the operators install, made of their published schemas, which lack the
    status."""
    for name in ("strimzi-1.3.json", "clickhouse-operator.json"):
        for each in json.loads((PUBLISHED / name).read_text()):
            kind, (group, version) = each["kind"], each["apiVersion"].split("/")
            plural = f"{kind.lower()}s"
            schema = each["schema"]
            schema["properties"]["status"] = {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            }
            yield {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": schema},
                            "subresources": {"status": {}},
                        }
                    ],
                },
            }


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of passwords, not in the checkout."""
    folder = tmp_path_factory.mktemp("compose")
    script = ROOT / "deploy" / "compose" / "make-secrets.sh"
    (folder / script.name).write_bytes(script.read_bytes())
    subprocess.run(["sh", str(folder / script.name)], capture_output=True, check=True)
    return folder / "secrets"


@pytest.fixture(autouse=True)
def empty(api: Cluster) -> Iterator[None]:
    """Each test begins and ends without the namespaces."""
    yield
    api.kubectl("delete", "namespace", *NAMESPACES, "--ignore-not-found", "--timeout=100s")


def commands(block: str) -> list[list[str]]:
    """The kubectl commands of the page's block that contains a text."""
    page = (ROOT / "deploy" / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (own,) = [each for each in blocks if block in each]
    lines = [line for line in own.splitlines() if line.startswith("kubectl ")]
    return [[word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)][1:] for line in lines]


def run_commands(api: Cluster, secrets: Path, block: str) -> None:
    """Run the commands of a block. Before one that waits, play the operators and the nodes."""
    for words in commands(block):
        if any(each in words for each in LEFT_OUT):
            continue
        if "wait" in words:
            play_operators(api)
            play_nodes(api)
        printed = api.kubectl(*(word.replace(SECRETS, str(secrets)) for word in words))
        assert "Warning" not in printed


def play_operators(api: Cluster) -> None:
    """Kafka is ready."""
    for kafka in api.listed("kafkas", "tidegauge"):
        set_status(api, kafka, conditions=[{"type": "Ready", "status": "True"}])


def play_nodes(api: Cluster) -> None:
    """All pods are ready, but for that of the Job `access`, which has ended."""
    for each in all_pods(api):
        is_over = each["metadata"]["labels"]["app.kubernetes.io/name"] == "access"
        ready = {"type": "Ready", "status": "False" if is_over else "True"}
        set_status(api, each, phase="Succeeded" if is_over else "Running", conditions=[ready])


def set_status(api: Cluster, resource: Resource, **status: Any) -> None:
    """Set fields of the status of a resource."""
    metadata, patch = resource["metadata"], json.dumps({"status": status})
    name = ("-n", metadata["namespace"], resource["kind"], metadata["name"])
    api.kubectl("patch", *name, "--subresource=status", "--type=merge", "-p", patch)


def all_pods(api: Cluster) -> list[Resource]:
    """The pods of all workloads, once their controllers have made them."""

    def wanted() -> Counter[str]:
        workloads = [
            each
            for space in NAMESPACES
            for each in api.listed("deployments,statefulsets,jobs", space)
        ]
        return +Counter({label(each): each["spec"].get("replicas", 1) for each in workloads})

    def pods() -> list[Resource]:
        return [each for space in NAMESPACES for each in api.listed("pods", space)]

    def made() -> Counter[str]:
        return Counter(maker(each) for each in pods())

    def failure() -> str:
        events = [api.kubectl("get", "events", "-n", space) for space in NAMESPACES]
        return f"{wanted()} is not {made()}: {events}"

    assert wait_until(lambda: made() == wanted(), READY_DEADLINE_S), failure()
    return pods()


def label(workload: Resource) -> str:
    metadata = workload["metadata"]
    return f"{metadata['namespace']}/{workload['kind']}/{metadata['name']}"


def maker(of_pod: Resource) -> str:
    """The label of a pod's workload."""
    (owner,) = of_pod["metadata"]["ownerReferences"]
    kind, name = owner["kind"], owner["name"]
    if kind == "ReplicaSet":
        kind, name = "Deployment", name.rpartition("-")[0]
    metadata = {"namespace": of_pod["metadata"]["namespace"], "name": name}
    return label({"kind": kind, "metadata": metadata})


def is_idempotent(api: Cluster, variant: str) -> None:
    """Applied once more, with strict validation, it is accepted and changes nothing."""
    folder = f"deploy/kubernetes/{variant}"
    assert api.kubectl("diff", "--server-side", "-k", folder) == ""
    api.kubectl("apply", "--server-side", "--validate=strict", "-k", folder)
    assert api.kubectl("diff", "--server-side", "-k", folder) == ""


def key(resource: Resource) -> tuple[str, str, str]:
    metadata = resource["metadata"]
    return resource["kind"], metadata.get("namespace", ""), metadata["name"]


@pytest.mark.parametrize("variant", ["simple", "base", "five-brokers", "executors"])
def test_kustomize_makes_the_resources_that_the_other_tests_check(
    api: Cluster, variant: str
) -> None:
    text = api.kubectl("kustomize", f"deploy/kubernetes/{variant}")
    made = sorted(yaml.safe_load_all(text), key=key)
    assert made == sorted(build(FOLDER / variant), key=key)


def test_the_simple_variant_is_accepted_with_its_pods(api: Cluster, secrets: Path) -> None:
    run_commands(api, secrets, "create namespace tidegauge")
    run_commands(api, secrets, "deploy/kubernetes/simple")
    is_idempotent(api, "simple")
    (run,) = api.listed("jobs", "tidegauge", "-l", "app.kubernetes.io/name=console")
    assert run["metadata"]["name"].startswith("run-")


def test_the_variants_with_operators_are_accepted_with_their_pods(
    api: Cluster, secrets: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_commands(api, secrets, "create namespace tidegauge")
    run_commands(api, secrets, "deploy/kubernetes/base")
    is_idempotent(api, "base")
    webhooks = {"team": {"shape": "slack", "url_file": "/run/secrets/slack"}}
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
    assert main([str(tmp_path)]) == 0
    assert api.kubectl("apply", "--server-side", "-k", str(tmp_path), "--dry-run=server")
    run_commands(api, secrets, "deploy/kubernetes/five-brokers")
    is_idempotent(api, "five-brokers")
    is_idempotent(api, "executors")
    # Which share of the load a generator sends.
    labels = [each["metadata"]["labels"] for each in all_pods(api)]
    generators = [each for each in labels if each["app.kubernetes.io/name"] == "generator"]
    ordinals = [each["apps.kubernetes.io/pod-index"] for each in generators]
    assert sorted(ordinals) == ["0", "1", "2", "3", "4"]
    # What the operators and the driver make pods of.
    for resource in [*build(FOLDER / "five-brokers"), TEMPLATE]:
        if resource["kind"] in ("KafkaNodePool", "ClickHouseInstallation", "Pod"):
            for name, spec in pods_of(resource):
                space = resource["metadata"].get("namespace", "tidegauge-spark")
                api.create(pod(f"{name}-by-hand", space, spec))
    for space, verb, kind, answer in (
        ("tidegauge-spark", "create", "pods", "yes"),
        ("tidegauge-spark", "deletecollection", "configmaps", "yes"),
        ("tidegauge-spark", "get", "secrets", "no"),
        ("tidegauge", "create", "pods", "no"),
        ("tidegauge", "get", "secrets", "no"),
    ):
        printed = api.kubectl("auth", "can-i", verb, kind, "-n", space, DRIVER, codes=(0, 1))
        assert printed.strip() == answer, (space, verb, kind)


def pod(name: str, namespace: str, spec: dict[str, Any]) -> Resource:
    containers = [{"image": "example", **each} for each in spec["containers"]]
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "containers": containers},
    }


BAD: dict[str, Callable[[dict[str, Any]], object]] = {
    "a privileged container": lambda spec: spec["containers"][0]["securityContext"].update(
        privileged=True, allowPrivilegeEscalation=True
    ),
    "a container of root": lambda spec: spec["securityContext"].update(
        runAsUser=0, runAsNonRoot=False
    ),
    "a folder of the node": lambda spec: spec["volumes"].append(
        {"name": "node", "hostPath": {"path": "/"}}
    ),
    "the network of the node": lambda spec: spec.update(hostNetwork=True),
    "a capability": lambda spec: spec["containers"][0]["securityContext"].update(
        capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    ),
    "no seccomp profile": lambda spec: spec["securityContext"].pop("seccompProfile"),
}


def test_what_is_not_restricted_or_misspelt_is_refused(api: Cluster) -> None:
    api.kubectl("apply", "--server-side", "-k", "deploy/kubernetes/executors")
    (spec,) = [spec for _name, spec in pods_of(TEMPLATE)]
    good = pod("executor", "tidegauge-spark", spec)
    api.create(good, "--dry-run=server")
    for what, change in BAD.items():
        bad = json.loads(json.dumps(good))
        change(bad["spec"])
        with pytest.raises(CommandError, match='violates PodSecurity "restricted') as refused:
            api.create(bad, "--dry-run=server")
        assert refused.value, what
    for variant, kind, name in (
        ("base", "Kafka", "tidegauge"),
        ("base", "ClickHouseInstallation", "tidegauge"),
        ("simple", "StatefulSet", "kafka"),
    ):
        misspelt = named(build(FOLDER / variant), kind, name)
        misspelt["metadata"]["namespace"] = "tidegauge-spark"
        misspelt["spec"]["replicaz"] = 3
        with pytest.raises(CommandError, match=r'unknown field "spec\.replicaz"'):
            api.create(misspelt, "--dry-run=server")
