"""Which pod can reach which port, evaluated from the network policies as Kubernetes does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from tests.contract.kustomize import Resource
from tests.contract.test_kubernetes import BASE, EXECUTORS, FIVE, SIMPLE, named

pytestmark = pytest.mark.contract

Labels = dict[str, str]


@dataclass(frozen=True)
class End:
    """A pod as seen by policies, and its port (0: none)."""

    name: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    port: int = 0


def ours(name: str, port: int = 0) -> End:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "tidegauge"}
    return End(name, "tidegauge", tuple(labels.items()), port)


def others(name: str, namespace: str, labels: Labels, port: int = 0) -> End:
    return End(name, namespace, tuple(labels.items()), port)


KAFKA = {
    "app.kubernetes.io/name": "kafka",
    "app.kubernetes.io/part-of": "strimzi-tidegauge",
    "strimzi.io/cluster": "tidegauge",
}
RUNNER = {"app.kubernetes.io/name": "runner", "app.kubernetes.io/part-of": "tidegauge"}
ENDS = [
    ours("access"),
    ours("collector"),
    ours("conductor"),
    ours("console"),
    ours("evaluator"),
    ours("gateway", 17081),
    ours("generator"),
    ours("grafana"),
    ours("runner"),
    ours("store", 17072),
    ours("watcher"),
    others("kafka", "tidegauge", KAFKA, 9094),
    others("open", "tidegauge", KAFKA, 9092),
    others("exporter", "tidegauge", KAFKA, 9404),
    others("clickhouse", "tidegauge", {"clickhouse.altinity.com/chi": "tidegauge"}, 8123),
    others("driver", "tidegauge-spark", RUNNER, 7078),
    others("executor", "tidegauge-spark", {"spark-role": "executor"}),
    others("operator", "operators", {}),
    others("stranger", "default", {}),
    others("dns", "kube-system", {"k8s-app": "kube-dns"}, 53),
]
WITHOUT_OPERATORS = [
    *(
        end
        for end in ENDS
        if end.name not in {"kafka", "open", "exporter", "clickhouse", "grafana"}
    ),
    ours("kafka", 9094),
    replace(ours("kafka", 9092), name="open"),
]
NAMESPACES: dict[str, Labels] = {
    name: {"kubernetes.io/metadata.name": name}
    for name in ("tidegauge", "tidegauge-spark", "default", "kube-system")
} | {"operators": {"tidegauge/operators": "true"}}


def matches(selector: dict[str, Any], labels: Labels) -> bool:
    found = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for each in selector.get("matchExpressions", []):
        inside = labels.get(each["key"]) in each["values"]
        found &= {"In": inside, "NotIn": not inside}[each["operator"]]
    return found


def is_peer(peer: dict[str, Any], end: End, own_namespace: str) -> bool:
    if "ipBlock" in peer:
        return False  # addresses outside the cluster
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], NAMESPACES[end.namespace]):
            return False
    elif end.namespace != own_namespace:
        return False
    return matches(peer.get("podSelector", {}), dict(end.labels))


def strimzis(resources: list[Resource]) -> list[Resource]:
    """Policies that Strimzi creates for listeners, and for metrics, which are open to all pods."""
    if "Kafka" not in {each["kind"] for each in resources}:
        return []
    listeners = named(resources, "Kafka", "tidegauge")["spec"]["kafka"]["listeners"]
    rules = [
        *(
            {"from": listener["networkPolicyPeers"], "ports": [{"port": listener["port"]}]}
            for listener in listeners
        ),
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 9404}]},
    ]
    spec = {
        "podSelector": {"matchLabels": {"strimzi.io/cluster": "tidegauge"}},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return [{"metadata": {"namespace": "tidegauge"}, "spec": spec}]


def lets(policies: list[Resource], way: str, of: End, peer: End, port: int) -> bool:
    """Whether the policies of a pod allow traffic to, or from, a peer."""
    mine = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == of.namespace
        and way in each["spec"]["policyTypes"]
        and matches(each["spec"]["podSelector"], dict(of.labels))
    ]
    rules = [rule for spec in mine for rule in spec.get(way.lower(), [])]
    side = {"Ingress": "from", "Egress": "to"}[way]
    return not mine or any(
        any(is_peer(each, peer, of.namespace) for each in rule[side])
        and port in [each["port"] for each in rule.get("ports", [{"port": port}])]
        for rule in rules
    )


def reached(
    resources: list[Resource], sides: str = "both", ends: Sequence[End] = ENDS
) -> set[tuple[str, str]]:
    """(from, to) of all allowed pairs; `sides` = Egress or Ingress evaluates only that side."""
    policies = [each for each in resources if each["kind"] == "NetworkPolicy"]
    policies += strimzis(resources)
    return {
        (source.name, target.name)
        for source, target in product(ends, ends)
        if source.name != target.name
        and target.port
        and (sides == "Ingress" or lets(policies, "Egress", source, target, target.port))
        and (sides == "Egress" or lets(policies, "Ingress", target, source, target.port))
    }


SERVICES = {
    "collector",
    "conductor",
    "console",
    "evaluator",
    "gateway",
    "generator",
    "runner",
    "store",
    "watcher",
}
SAME_PODS = {("kafka", "exporter"), ("open", "exporter")}
OF_THE_BASE = {
    *((client, "kafka") for client in {*SERVICES, "access"}),
    ("generator", "gateway"),
    ("runner", "open"),  # its pipelines
    *SAME_PODS,
    ("collector", "exporter"),
    ("conductor", "store"),
    ("console", "store"),
    ("store", "clickhouse"),
    ("grafana", "clickhouse"),
    ("operator", "kafka"),
    ("operator", "open"),
    ("operator", "exporter"),
    ("operator", "clickhouse"),
    ("stranger", "exporter"),  # Strimzi's own policy; it exposes record counts
}
INSIDE = {end.name for end in ENDS if end.namespace == "tidegauge"}


def test_a_pod_of_the_base_reaches_only_what_it_asks() -> None:
    found = {pair for pair in reached(BASE) if "dns" not in pair}
    spark = {pair for pair in found if {"driver", "executor"} & set(pair)}
    # Without ../executors there are no policies for its namespace.
    assert spark == {
        *(("driver", "exporter"), ("executor", "exporter"), ("executor", "driver")),
        *(("operator", "driver"), ("stranger", "driver")),
    }
    assert found - spark == OF_THE_BASE


def test_each_side_says_so_by_itself() -> None:
    """A single policy that is too wide does not open a connection."""
    sent = {pair for pair in reached(BASE, "Egress") if pair[0] in INSIDE and pair[1] != "dns"}
    assert sent == {
        *(pair for pair in OF_THE_BASE if pair[0] in INSIDE),
        *product(("exporter",), ("kafka", "open")),
        *(("kafka", "open"), ("open", "kafka")),
    }
    taken = {pair for pair in reached(BASE, "Ingress") if pair[1] in INSIDE - {"exporter"}}
    assert taken == {pair for pair in OF_THE_BASE if pair[1] != "exporter"}


def test_without_operators_the_services_reach_what_they_do_with_them() -> None:
    gone = {"exporter", "clickhouse", "grafana", "operator"}
    expected = {pair for pair in OF_THE_BASE if not gone & set(pair)}
    found = {pair for pair in reached(SIMPLE, ends=WITHOUT_OPERATORS) if "dns" not in pair}
    assert {pair for pair in found if set(pair) <= INSIDE} == expected
    # The driver's namespace is not applied; the outside reaches nothing.
    assert {target for source, target in found if source not in INSIDE} == {"driver"}
    for side, own in (("Egress", 0), ("Ingress", 1)):
        alone = reached(SIMPLE, side, WITHOUT_OPERATORS)
        assert {pair for pair in alone if pair[own] in INSIDE and pair[1] != "dns"} == expected


def test_what_no_policy_names_is_refused() -> None:
    nothing_else = named(BASE, "NetworkPolicy", "nothing-else")["spec"]
    assert nothing_else == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    spark = named(EXECUTORS, "NetworkPolicy", "spark")["spec"]
    assert (spark["podSelector"], spark["policyTypes"]) == ({}, ["Ingress", "Egress"])


def test_every_pod_of_the_base_may_ask_for_names() -> None:
    assert {source for source, target in reached(BASE) if target == "dns"} >= INSIDE


def test_with_executors_driver_and_executors_reach_each_other_and_kafka() -> None:
    found = {pair for pair in reached([*FIVE, *EXECUTORS]) if "dns" not in pair}
    ways = {("driver", "kafka"), ("driver", "open"), ("executor", "open"), ("executor", "driver")}
    assert found == OF_THE_BASE | ways


def test_only_grafana_and_the_driver_get_out_of_the_cluster() -> None:
    """To port 443, for Grafana to public addresses only; the API may be anywhere."""
    blocks = [
        (each["metadata"]["name"], peer["ipBlock"], [port["port"] for port in rule["ports"]])
        for each in [*BASE, *EXECUTORS]
        if each["kind"] == "NetworkPolicy"
        for rule in each["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    private = ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"]
    assert blocks == [
        ("grafana", {"cidr": "0.0.0.0/0", "except": private}, [443]),
        ("api", {"cidr": "0.0.0.0/0"}, [443, 6443]),
    ]
