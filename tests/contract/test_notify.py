"""Webhooks in containers, and Grafana's contact point, generated from the same settings."""

import json
from pathlib import Path

import pytest
import yaml

from deploy.grafana.program.__main__ import ALERTS, main
from services.runtime.webhooks import Webhook, WebhookSettings
from tests.contract.compose import FOLDER, PARTS, value_of
from tests.contract.service_settings import unknown_settings

pytestmark = pytest.mark.contract

OVERLAY = yaml.safe_load((FOLDER / "notify.yaml").read_text())


def test_the_contact_point_has_the_webhooks_and_every_rule_goes_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    webhooks = {
        "team": {"shape": "slack", "url_file": "/run/secrets/slack"},
        "pager": {"url": "https://example.org/$a", "token_file": "/run/secrets/pager"},
        "room": {"shape": "teams", "url": "https://example.org/b"},
    }
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
    assert main(["contact-points", str(tmp_path / "new" / "alerts.json")]) == 0
    found = json.loads((tmp_path / "new" / "alerts.json").read_text())
    (point,) = found["contactPoints"]
    assert point["name"] == "Tidegauge"
    assert point["receivers"] == [
        {
            "uid": "tidegauge-team",
            "type": "slack",
            "settings": {"url": "$__file{/run/secrets/slack}"},
        },
        {
            "uid": "tidegauge-pager",
            "type": "webhook",
            "settings": {
                "url": "https://example.org/$$a",
                "authorization_scheme": "Bearer",
                "authorization_credentials": "$__file{/run/secrets/pager}",
            },
        },
        {"uid": "tidegauge-room", "type": "teams", "settings": {"url": "https://example.org/b"}},
    ]
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    plain = [rule for group in json.loads(ALERTS.read_text())["groups"] for rule in group["rules"]]
    settings = [rule.pop("notification_settings") for rule in rules]
    assert settings == [{"receiver": "Tidegauge"}] * len(plain)
    assert rules == plain


def test_long_names_that_begin_alike_have_ids_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["n" * 62 + last for last in "ab"]
    webhooks = {name: {"url": "https://example.org/"} for name in names}
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", json.dumps(webhooks))
    assert main(["contact-points", str(tmp_path / "alerts.json")]) == 0
    (point,) = json.loads((tmp_path / "alerts.json").read_text())["contactPoints"]
    ids = {receiver["uid"] for receiver in point["receivers"]}
    assert [len(one) for one in ids] == [40, 40]


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
