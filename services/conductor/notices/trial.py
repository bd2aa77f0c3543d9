"""Posts a test message to every webhook: `python -m services.conductor.notices.trial`, which
`doctor --notify` starts. Prints a line of JSON for each: `webhook`, `reason` if it did not accept
the message, and `is_plain`: whether http is allowed for it."""

import json
import uuid

from services.conductor.notices.notice import Notice
from services.conductor.notices.posting import SHAPES, NotTakenError, post
from services.runtime.process import now_ms
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import load_settings
from services.runtime.webhooks import Webhook, WebhookSettings


def main() -> None:
    """One attempt for each webhook."""
    settings = load_settings(WebhookSettings)
    for name, webhook in settings.webhooks.items():
        reason = refusal(name, webhook, settings.webhook_timeout_s)
        outcome = {"webhook": name, "reason": reason, "is_plain": webhook.allow_http}
        print(json.dumps(outcome), flush=True)


def refusal(name: str, webhook: Webhook, timeout_s: float) -> str:
    """Why a webhook did not accept a test message; empty if it did."""
    notice = Notice(
        id=f"trial/{uuid.uuid4()}",
        at_ms=now_ms(),
        kinds=(),
        title="Tidegauge: a test message",
        lines=(f"Messages to the webhook {name} arrive.",),
    )
    try:
        body = SHAPES[webhook.shape](notice)
        post(webhook.address(), body, notice.id, webhook.token(), timeout_s)
    except (NotTakenError, SecretFileError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
