"""Grafana contact point from the same settings as the conductor's webhooks, and alert rules that
use it directly, so that existing notification policies in Grafana are not changed.

Grafana reads an address in a file itself (`$__file{…}`, as in grafana.ini), so the file written
here does not contain the secret of a `url_file`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from services.runtime.webhooks import Webhook

NAME: Final = "Tidegauge"
MOST_UID: Final = 40  # Grafana's limit in characters
TYPES: Final = {"json": "webhook", "slack": "slack", "teams": "teams"}


def with_contact_point(
    provisioned: Mapping[str, Any], webhooks: Mapping[str, Webhook]
) -> dict[str, Any]:
    """The alerting file with a contact point; unchanged without webhooks."""
    if not webhooks:
        return dict(provisioned)
    receivers = [_receiver(name, one) for name, one in webhooks.items()]
    groups = [group | {"rules": [_sent(one) for one in group["rules"]]} for group in
              provisioned["groups"]]  # fmt: skip
    point = {"orgId": 1, "name": NAME, "receivers": receivers}
    return {**provisioned, "contactPoints": [point], "groups": groups}


def _sent(rule: dict[str, Any]) -> dict[str, Any]:
    return rule | {"notification_settings": {"receiver": NAME}}


def _receiver(name: str, webhook: Webhook) -> dict[str, Any]:
    settings = {"url": _value(webhook.url, webhook.url_file)}
    if webhook.token_file:
        settings["authorization_scheme"] = "Bearer"
        settings["authorization_credentials"] = _value("", webhook.token_file)
    return {"uid": _uid(name), "type": TYPES[webhook.shape], "settings": settings}


def _uid(name: str) -> str:
    """A distinct uid for every name, within Grafana's length limit."""
    uid = f"tidegauge-{name}"
    if len(uid) <= MOST_UID:
        return uid
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{uid[: MOST_UID - 9]}-{digest}"


def _value(text: str, file: object) -> str:
    return f"$__file{{{file}}}" if file else text.replace("$", "$$")
