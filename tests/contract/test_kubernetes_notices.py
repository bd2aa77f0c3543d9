"""The conductor's access to webhooks on a cluster, generated from the settings that it reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.__main__ import main
from services.runtime.webhooks import WebhookSettings
from tests.contract.kustomize import Resource, build
from tests.contract.service_settings import unknown_settings
from tests.contract.test_kubernetes import BASE, errors, named, ours
from tests.contract.test_kubernetes_network import reached
from tests.contract.test_kubernetes_security import Pod, pods_of
from tests.contract.test_kubernetes_security import test_a_pod_is_restricted as is_restricted

pytestmark = pytest.mark.contract

WEBHOOKS = {
    "team": {"shape": "slack", "url_file": "/run/secrets/slack"},
    "pager": {"url": "https://pager.example.org:8443/hook", "token_file": "/run/secrets/pager"},
    "own": {"url": "https://10.1.2.3:9443/hook", "on": ["part_down"]},
    "here": {"url": "http://127.0.0.1:9000/hook"},
}
PRIVATE = ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"]


def tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def overlay(
    monkeypatch: pytest.MonkeyPatch, folder: Path, webhooks: dict[str, Any], *options: str
) -> list[Resource]:
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
    monkeypatch.setenv("TIDEGAUGE_NO_RESULTS_MINUTES", "45")
    assert main([str(folder), *options]) == 0
    return build(folder)


def test_the_conductor_reaches_the_ports_of_the_settings_and_nobody_else_gets_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = overlay(monkeypatch, tmp_path / "notify", WEBHOOKS)
    assert [one for one in found if one["kind"] != "Deployment"][:-1] == [
        one for one in BASE if one["kind"] != "Deployment"
    ]
    policy = named(found, "NetworkPolicy", "notices")
    assert errors(policy) == []
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "conductor"}},
        "policyTypes": ["Egress"],
        "egress": [
            {
                "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE}}],
                "ports": tcp(443, 8443),
            },
            {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": tcp(9443)},
        ],
    }
    # It opens nothing within the cluster.
    assert reached(found) == reached(BASE)


def test_receivers_with_a_name_may_be_in_ranges_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ranges = ("--to", "10.20.0.0/16", "--to", "10.30.0.0/16")
    found = overlay(monkeypatch, tmp_path / "notify", {"team": WEBHOOKS["team"]}, *ranges)
    (rule,) = named(found, "NetworkPolicy", "notices")["spec"]["egress"]
    assert rule == {
        "to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}, {"ipBlock": {"cidr": "10.30.0.0/16"}}],
        "ports": tcp(443),
    }


def test_the_conductor_is_told_the_same_webhooks_and_mounts_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = overlay(monkeypatch, tmp_path / "notify", WEBHOOKS)
    conductor = named(found, "Deployment", "conductor")
    assert errors(conductor) == []
    container = ours(found)["conductor"]
    added = {one["name"]: one["value"] for one in container["env"][-2:]}
    assert unknown_settings("conductor", set(added)) == set()
    told = WebhookSettings.model_validate({"webhooks": json.loads(added["TIDEGAUGE_WEBHOOKS"])})
    assert told.webhooks == WebhookSettings().webhooks
    assert added["TIDEGAUGE_NO_RESULTS_MINUTES"] == "45"
    assert [
        (mount["mountPath"], mount["subPath"], mount["readOnly"])
        for mount in container["volumeMounts"]
        if mount["name"] == "webhooks"
    ] == [("/run/secrets/pager", "pager", True), ("/run/secrets/slack", "slack", True)]
    volumes = conductor["spec"]["template"]["spec"]["volumes"]
    assert volumes[-1] == {
        "name": "webhooks",
        "secret": {
            "secretName": "tidegauge-webhooks",
            "defaultMode": 0o440,
            "items": [{"key": "pager", "path": "pager"}, {"key": "slack", "path": "slack"}],
        },
    }
    (pod,) = (Pod("tidegauge", name, spec, "Deployment") for name, spec in pods_of(conductor))
    is_restricted(pod)


def test_without_files_the_conductor_needs_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = overlay(monkeypatch, tmp_path / "notify", {"own": WEBHOOKS["own"]})
    volumes = named(found, "Deployment", "conductor")["spec"]["template"]["spec"]["volumes"]
    assert volumes == named(BASE, "Deployment", "conductor")["spec"]["template"]["spec"]["volumes"]


def test_what_makes_no_sense_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TIDEGAUGE_WEBHOOKS", raising=False)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "kubernetes: the settings have no webhooks\n"
    twice = {name: {"url_file": f"/run/{name}/address"} for name in ("a", "b")}
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(twice))
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "kubernetes: two files of the webhooks have the same name\n"
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps({"team": WEBHOOKS["team"]}))
    assert main([str(tmp_path), "--to", "10.0.0.300/8"]) == 2
    assert "10.0.0.300/8" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
