"""Grafana contact points from the same settings as the conductor's webhooks, and alert rules that
use them directly, so that existing notification policies in Grafana are not changed.

Grafana reads an address in a file itself (`$__file{…}`, as in grafana.ini), so the file written
here does not contain the secret of a `url_file`.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deploy.grafana.program import alerts
from services.runtime.webhooks import Webhook

UID_DIGITS: Final = 16
TYPES: Final = {"json": "webhook", "slack": "slack", "teams": "teams"}
KINDS: Final = {alerts.uid(rule): set(rule.kinds) for rule in alerts.RULES}


def with_contact_points(
    provisioned: Mapping[str, Any], webhooks: Mapping[str, Webhook]
) -> dict[str, Any]:
    """The alerting file with a contact point for every set of webhooks that a rule notifies.
    Without webhooks it is unchanged. A rule that no webhook selects is deleted."""
    if not webhooks:
        return dict(provisioned)
    selected = {
        uid: tuple(name for name, one in webhooks.items() if not one.on or kinds & set(one.on))
        for uid, kinds in KINDS.items()
    }
    told = {uid: names for uid, names in selected.items() if names}
    groups = []
    for group in provisioned["groups"]:
        rules = [rule for rule in group["rules"] if rule["uid"] in told]
        groups.append(group | {"rules": [_sent(rule, told[rule["uid"]]) for rule in rules]})
    return {
        **provisioned,
        "contactPoints": [_point(names, webhooks) for names in dict.fromkeys(told.values())],
        "groups": groups,
        # Grafana keeps a rule that is only absent from the file.
        "deleteRules": [{"orgId": 1, "uid": uid} for uid in KINDS if uid not in told],
    }


def _sent(rule: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return rule | {"notification_settings": {"receiver": _name(names)}}


def _name(names: tuple[str, ...]) -> str:
    return f"Tidegauge: {', '.join(names)}"


def _point(names: tuple[str, ...], webhooks: Mapping[str, Webhook]) -> dict[str, Any]:
    name = _name(names)
    receivers = [_receiver(f"{name}/{one}", webhooks[one]) for one in names]
    return {"orgId": 1, "name": name, "receivers": receivers}


def _receiver(place: str, webhook: Webhook) -> dict[str, Any]:
    """place: what identifies it. Grafana requires a distinct uid in every contact point."""
    settings = {"url": _value(webhook.url, webhook.url_file)}
    if webhook.token_file:
        settings["authorization_scheme"] = "Bearer"
        settings["authorization_credentials"] = _value("", webhook.token_file)
    uid = f"tidegauge-{hashlib.sha256(place.encode()).hexdigest()[:UID_DIGITS]}"
    return {"uid": uid, "type": TYPES[webhook.shape], "settings": settings}


def _value(text: str, file: Path | None) -> str:
    """Grafana looks for a relative path in a folder of its own."""
    return f"$__file{{{file.absolute()}}}" if file else text.replace("$", "$$")
