"""Webhooks on a cluster: the conductor's settings, mounts and network policy. Pure.

A network policy supports addresses and ports, not names. So a webhook with a host name opens its
port to public addresses, or to the given ranges; one with an IP address opens that address alone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from services.runtime.hosts import LOOPBACK
from services.runtime.webhooks import Webhook

SECRET: Final = "tidegauge-webhooks"
HTTP: Final = 80
HTTPS: Final = 443
PUBLIC: Final[dict[str, Any]] = {
    "cidr": "0.0.0.0/0",
    "except": ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"],
}
CONDUCTOR: Final = {"app.kubernetes.io/name": "conductor"}
_POD: Final = "/spec/template/spec"


def network_policy(webhooks: Mapping[str, Webhook], ranges: Iterable[str] = ()) -> dict[str, Any]:
    """Egress of the conductor to its webhooks. ranges: CIDR ranges of receivers with a host name;
    public addresses by default. Raises ValueError for an invalid range."""
    named = [{"ipBlock": {"cidr": str(ip_network(each))}} for each in ranges]
    named = named or [{"ipBlock": PUBLIC}]
    rules: dict[str, dict[str, Any]] = {}
    for host, port in sorted(set(_ends(webhooks))):
        to = [{"ipBlock": {"cidr": host}}] if host else named
        rule = rules.setdefault(host, {"to": to, "ports": []})
        rule["ports"].append({"protocol": "TCP", "port": port})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "notices"},
        "spec": {
            "podSelector": {"matchLabels": CONDUCTOR},
            "policyTypes": ["Egress"],
            "egress": list(rules.values()),
        },
    }


def kustomization(
    webhooks: Mapping[str, Webhook], no_results_minutes: float, base: str, policy: str
) -> dict[str, Any]:
    """The overlay on a folder with a kustomization. Raises ValueError if two files of the settings
    have the same name, which is the secret's key."""
    patch = [
        *(_added("env", variable) for variable in _variables(webhooks, no_results_minutes)),
        *(_added("volumeMounts", mount) for mount in _mounts(webhooks)),
        *(
            {"op": "add", "path": f"{_POD}/volumes/-", "value": volume}
            for volume in _volumes(webhooks)
        ),
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "tidegauge",
        "resources": [base, policy],
        "patches": [
            {
                "target": {"kind": "Deployment", "name": "conductor"},
                "patch": json.dumps(patch),
            }
        ],
    }


def _ends(webhooks: Mapping[str, Webhook]) -> Iterator[tuple[str, int]]:
    """(range of the address, or empty for a host name; port). An address in a file counts as a host
    name with the usual port. Loopback addresses need no egress."""
    for webhook in webhooks.values():
        parts = urlsplit(webhook.url or "https://in-a-file")
        host = parts.hostname or ""
        if host in LOOPBACK:
            continue
        try:
            result = str(ip_network(ip_address(host)))
        except ValueError:
            result = ""
        yield result, parts.port or (HTTP if parts.scheme == "http" else HTTPS)


def _files(webhooks: Mapping[str, Webhook]) -> dict[str, Path]:
    """The files of all webhooks, by file name."""
    every = {
        file
        for webhook in webhooks.values()
        for file in (webhook.url_file, webhook.token_file)
        if file
    }
    result = {file.name: file for file in sorted(every)}
    if len(result) < len(every):
        raise ValueError("two files of the webhooks have the same name")
    return result


def _variables(webhooks: Mapping[str, Webhook], minutes: float) -> Iterator[dict[str, str]]:
    settings = {
        name: each.model_dump(mode="json", exclude_defaults=True) for name, each in webhooks.items()
    }
    yield {"name": "TIDEGAUGE_WEBHOOKS", "value": json.dumps(settings)}
    if minutes:
        yield {"name": "TIDEGAUGE_NO_RESULTS_MINUTES", "value": f"{minutes:g}"}


def _mounts(webhooks: Mapping[str, Webhook]) -> Iterator[dict[str, Any]]:
    for name, path in _files(webhooks).items():
        place = str(PurePosixPath(path))
        yield {"name": "webhooks", "mountPath": place, "subPath": name, "readOnly": True}


def _volumes(webhooks: Mapping[str, Webhook]) -> Iterator[dict[str, Any]]:
    if items := [{"key": name, "path": name} for name in _files(webhooks)]:
        secret = {"secretName": SECRET, "defaultMode": 0o440, "items": items}
        yield {"name": "webhooks", "secret": secret}


def _added(to: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": f"{_POD}/containers/0/{to}/-", "value": value}
