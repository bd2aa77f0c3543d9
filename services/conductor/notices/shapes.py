"""Formats a notification for each receiver. Pure.

`json`: our own fields. `slack`: an incoming webhook's text, in which &, < and > are escaped.
`teams`: an Adaptive Card, as Power Automate's workflow for a channel expects it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from services.conductor.notices.notice import Notice


def plain(notice: Notice) -> dict[str, Any]:
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


def slack(notice: Notice) -> dict[str, Any]:
    """The title in bold, then one line each."""
    lines = [f"*{_escaped(notice.title)}*", *(f"• {_escaped(line)}" for line in notice.lines)]
    return {"text": "\n".join(lines)}


def teams(notice: Notice) -> dict[str, Any]:
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


SHAPES: dict[str, Callable[[Notice], dict[str, Any]]] = {
    "json": plain,
    "slack": slack,
    "teams": teams,
}


def _block(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
