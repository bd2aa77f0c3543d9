"""Webhooks in containers, and Grafana's contact points, generated from the same settings."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from deploy.grafana.program import alerts
from deploy.grafana.program.__main__ import ALERTS, main
from schemas.suite import NoticeKind
from services.runtime.settings import ROOT
from services.runtime.webhooks import Webhook, WebhookSettings
from tests.contract.compose import FOLDER, PARTS, value_of
from tests.contract.service_settings import unknown_settings

pytestmark = pytest.mark.contract

Part = dict[str, Any]
OVERLAY = yaml.safe_load((FOLDER / "notify.yaml").read_text())


def written(monkeypatch: pytest.MonkeyPatch, path: Path, webhooks: Part) -> Part:
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
    assert main(["contact-points", str(path)]) == 0
    found: Part = json.loads(path.read_text())
    return found


def rules_of(found: Part) -> list[Part]:
    return [rule for group in found["groups"] for rule in group["rules"]]


def test_a_contact_point_has_the_webhooks_and_every_rule_goes_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    webhooks = {
        "team": {"shape": "slack", "url_file": "/run/secrets/slack"},
        "pager": {"url": "https://example.org/$a", "token_file": "/run/secrets/pager"},
        "room": {"shape": "teams", "url": "https://example.org/b"},
    }
    found = written(monkeypatch, tmp_path / "new" / "alerts.json", webhooks)
    (point,) = found["contactPoints"]
    assert point["name"] == "Tidegauge: team, pager, room"
    assert [(one["type"], one["settings"]) for one in point["receivers"]] == [
        ("slack", {"url": "$__file{/run/secrets/slack}"}),
        (
            "webhook",
            {
                "url": "https://example.org/$$a",
                "authorization_scheme": "Bearer",
                "authorization_credentials": "$__file{/run/secrets/pager}",
            },
        ),
        ("teams", {"url": "https://example.org/b"}),
    ]
    rules, plain = rules_of(found), rules_of(json.loads(ALERTS.read_text()))
    settings = [rule.pop("notification_settings") for rule in rules]
    assert settings == [{"receiver": point["name"]}] * len(plain)
    assert rules == plain
    assert found["deleteRules"] == []


def test_a_rule_goes_to_the_webhooks_of_its_kinds_and_without_one_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    webhooks = {
        "pager": {"url": "https://example.org/a", "on": ["part_down", "watch_trouble"]},
        "team": {"url": "https://example.org/b", "on": ["threshold", "part_down", "invalid"]},
    }
    found = written(monkeypatch, tmp_path / "alerts.json", webhooks)
    both = "Tidegauge: pager, team"
    assert {rule["uid"]: rule["notification_settings"]["receiver"] for rule in rules_of(found)} == {
        "tidegauge-threshold-failed": "Tidegauge: team",
        "tidegauge-watch-problem": both,
        "tidegauge-generator-late": "Tidegauge: team",
        "tidegauge-store-behind": both,
        "tidegauge-service-silent": both,
    }
    assert found["deleteRules"] == [
        {"orgId": 1, "uid": f"tidegauge-{name}"}
        for name in ("ledger-not-clean", "latency-change-point", "evaluator-lag")
    ]
    points = {point["name"]: point["receivers"] for point in found["contactPoints"]}
    assert {name: len(receivers) for name, receivers in points.items()} == {
        "Tidegauge: team": 1,
        both: 2,
    }
    uids = [receiver["uid"] for receivers in points.values() for receiver in receivers]
    assert len(set(uids)) == len(uids)
    assert all(len(uid) <= 40 for uid in uids)  # Grafana's limit


def test_every_kind_has_a_rule_and_the_page_lists_it() -> None:
    kinds = {kind for rule in alerts.RULES for kind in rule.kinds}
    assert kinds == set(get_args(NoticeKind))
    page = (ROOT / "docs" / "notifications.md").read_text()
    for kind in kinds:
        titles = [rule.title for rule in alerts.RULES if kind in rule.kinds]
        assert f"| `{kind}` | {', '.join(titles)} |" in page


def test_without_webhooks_the_alerts_are_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIDEGAUGE_WEBHOOKS", raising=False)
    main(["contact-points", str(tmp_path / "alerts.json")])
    assert json.loads((tmp_path / "alerts.json").read_text()) == json.loads(ALERTS.read_text())


def test_in_containers_the_address_is_a_secret_of_conductor_and_grafana() -> None:
    parts = OVERLAY["services"]
    assert set(parts) == {"conductor", "grafana"}
    variables = parts["conductor"]["environment"]
    assert unknown_settings("conductor", set(variables)) == set()
    told = {name: value_of(text) for name, text in variables.items()}
    webhooks = WebhookSettings.model_validate(
        {"webhooks": json.loads(told["TIDEGAUGE_WEBHOOKS"])}
    ).webhooks
    assert webhooks == {"team": Webhook(url_file=Path("/run/secrets/webhook"))}
    assert OVERLAY["secrets"] == {"webhook": {"file": "./secrets/webhook"}}
    assert [part["secrets"] for part in parts.values()] == [["webhook"], ["webhook"]]
    (mount,) = parts["grafana"]["volumes"]
    replaced = [one for one in PARTS["grafana"]["volumes"] if one.split(":")[1] in mount]
    assert replaced == ["../grafana/provisioning/alerting:/etc/grafana/provisioning/alerting:ro"]
