"""Fetches one page over HTTP, bounded in time and size. Does not follow redirects."""

import http.client
from http import HTTPStatus
from typing import Final

from services.collector.metrics.samples import NoAnswerError
from services.runtime.http_deadline import connected, path_of

HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Connection": "close"}


def fetch(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """The body of a page. Raises NoAnswerError: no complete response within `timeout_s`, a status
    other than 200, or more than `max_bytes`."""
    try:
        with connected(url, timeout_s) as connection:
            connection.request("GET", path_of(url), headers=HEADERS)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise NoAnswerError(f"it answered {response.status}")
            body = response.read(max_bytes + 1)
    except TimeoutError as error:
        raise NoAnswerError(f"it did not answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(f"it does not answer: {error or type(error).__name__}") from error
    if len(body) > max_bytes:
        raise NoAnswerError(f"its answer has more than {max_bytes} bytes")
    return body
