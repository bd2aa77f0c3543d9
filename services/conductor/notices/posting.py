"""One attempt to post a notification, in bounded time and without following redirects.

Forms of a message: `json`: our own fields. `slack`: an incoming webhook's text, in which &, < and >
are escaped. `teams`: an Adaptive Card, as Power Automate's workflow for a channel expects it.

`python -m services.conductor.notices.posting`, which `doctor --notify` starts, posts a test message
to every webhook. It prints a line of JSON for each: `webhook`, `reason` if it did not accept the
message, and `is_plain`: whether http is allowed for it.
"""

import http.client
import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from services.conductor.notices.notice import Notice
from services.runtime.hosts import ProxyError, connected, path_of, proxy_for
from services.runtime.process import now_ms
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import load_settings
from services.runtime.webhooks import Webhook, WebhookSettings

TOO_EARLY, TOO_MANY, REQUEST_TIMEOUT = 425, 429, 408
LATER: Final = (REQUEST_TIMEOUT, TOO_EARLY, TOO_MANY)
_TUNNEL: Final = re.compile(r"Tunnel connection failed: (\d{3})")
MOST_BYTES: Final = 2_000  # of the response, which is ignored
Body = Mapping[str, object]  # of JSON


class NotTakenError(Exception):
    """The receiver did not accept it. for_good: retrying would not help."""

    def __init__(self, reason: str, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


def post(url: str, body: Body, notice_id: str, token: str, timeout_s: float) -> None:
    """Post a body as JSON, with the id as Idempotency-Key, through the proxy that the environment
    names. Raises NotTakenError, whose text does
    not contain the address."""
    headers: dict[str, str | bytes] = {
        "Content-Type": "application/json",
        "Idempotency-Key": notice_id,
        "User-Agent": "tidegauge",
    }
    try:
        proxy = proxy_for(url)
    except ProxyError as error:
        raise NotTakenError(f"its proxy cannot be used: {error}") from error
    through = f" through the proxy {proxy.host}:{proxy.port}" if proxy else ""
    is_http = url.startswith("http:")
    try:
        if token:
            headers["Authorization"] = f"Bearer {token}".encode("latin-1")
        if proxy and is_http:  # without a tunnel the proxy reads the whole request
            headers |= proxy.headers
        path = url.partition("#")[0] if proxy and is_http else path_of(url)
        with connected(url, timeout_s, proxy) as connection:
            connection.request("POST", path, json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        refused = _TUNNEL.match(str(error))
        why = f"which answered {refused[1]}" if refused else type(error).__name__
        raise NotTakenError(f"it cannot be reached{through} ({why})") from error
    except ValueError as error:  # a host name or a token that cannot be encoded
        reason = f"its address or token cannot be used ({type(error).__name__})"
        raise NotTakenError(reason, for_good=True) from error
    if not 200 <= answer.status < 300:
        for_good = answer.status < 500 and answer.status not in LATER
        raise NotTakenError(f"it answered {answer.status}", for_good)


def plain(notice: Notice) -> Body:
    """All fields as JSON."""
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC)
    return {
        "id": notice.id,
        "time": at.isoformat(timespec="milliseconds"),
        "kinds": list(notice.kinds),
        "title": notice.title,
        "lines": list(notice.lines),
        "run_id": notice.run_id,
    }


def slack(notice: Notice) -> Body:
    """The title in bold, then one line each."""
    lines = [f"*{_escaped(notice.title)}*", *(f"• {_escaped(line)}" for line in notice.lines)]
    return {"text": "\n".join(lines)}


def teams(notice: Notice) -> Body:
    """A card of text blocks. TextRun does not interpret Markdown, which stage names may contain."""
    blocks = [_block(notice.title, weight="Bolder", size="Medium"), *map(_block, notice.lines)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "content": card}]}


SHAPES: dict[str, Callable[[Notice], Body]] = {
    "json": plain,
    "slack": slack,
    "teams": teams,
}


def _block(text: str, **style: str) -> Body:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


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
