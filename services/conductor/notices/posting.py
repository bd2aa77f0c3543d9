"""One attempt to post a notification, in bounded time and without following redirects."""

import http.client
import json
from typing import Any, Final

from services.runtime.http_deadline import connected, path_of

TOO_EARLY, TOO_MANY, REQUEST_TIMEOUT = 425, 429, 408
LATER: Final = (REQUEST_TIMEOUT, TOO_EARLY, TOO_MANY)
MOST_BYTES: Final = 2_000  # of the response, which is ignored


class NotTakenError(Exception):
    """The receiver did not accept it. for_good: retrying would not help."""

    def __init__(self, reason: str, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


def post(url: str, body: dict[str, Any], notice_id: str, token: str, timeout_s: float) -> None:
    """Post a body as JSON, with the id as Idempotency-Key. Raises NotTakenError, whose text does
    not contain the address."""
    headers: dict[str, str | bytes] = {
        "Content-Type": "application/json",
        "Idempotency-Key": notice_id,
        "User-Agent": "tidegauge",
    }
    try:
        if token:
            headers["Authorization"] = f"Bearer {token}".encode("latin-1")
        with connected(url, timeout_s) as connection:
            connection.request("POST", path_of(url), json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise NotTakenError(f"it cannot be reached ({type(error).__name__})") from error
    except ValueError as error:  # a host name or a token that cannot be encoded
        reason = f"its address or token cannot be used ({type(error).__name__})"
        raise NotTakenError(reason, for_good=True) from error
    if not 200 <= answer.status < 300:
        for_good = answer.status < 500 and answer.status not in LATER
        raise NotTakenError(f"it answered {answer.status}", for_good)
