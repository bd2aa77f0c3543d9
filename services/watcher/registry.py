"""Schemas by the id in Confluent's header, from files or from a registry over HTTP.

Schemas are immutable, so each is fetched once. A missing one is fetched again after a while, as it
may have been registered since. Records may contain any id, so the number of unknown ids fetched in
that time is limited. Only some statuses (NO_SCHEMA) say that a schema does not exist. A registry
that does not answer, or answers with another status, is an error of its own: it says nothing about
a record.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final

from schemas.codec import told_by
from schemas.watch import Registry
from services.runtime.answers import NoRedirects, RefusedError

TIMEOUT_S: Final = 5.0
ASK_AGAIN_S: Final = 30.0
# Statuses about the id itself: malformed, not found (Confluent's error codes 40401 to 40403),
# unprocessable.
NO_SCHEMA: Final = (400, 404, 422)
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 200
MOST_UNKNOWN: Final = 10  # fetched per ASK_AGAIN_S
TOO_MANY: Final = f"its schema is unknown, like {MOST_UNKNOWN} others requested recently"


class SchemaMissingError(ValueError):
    """A schema is unavailable; the text gives the reason."""


class RegistrySilentError(RuntimeError):
    """The registry does not say at the moment whether it has a schema."""


class SchemaIds:
    """Avro schemas by id: a schema as JSON, after those that it refers to, in dependency order.

    known: `.avsc` texts by id. ask: fetches JSON at a path of the registry; None without one.
    """

    def __init__(
        self,
        known: Mapping[str, str],
        ask: Callable[[str], Any] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._found: dict[int, list[Any]] = {
            int(number): [json.loads(text)] for number, text in known.items()
        }
        self._missing: dict[int, tuple[float, str]] = {}  # retry time and reason
        self._others_s = 0.0  # retry time of ids that were not fetched
        self._ask = ask
        self._clock_s = clock_s

    def schema(self, number: int) -> list[Any]:
        """The schema with an id, last, after those that it refers to. Raises SchemaMissingError,
        RegistrySilentError."""
        if number in self._found:
            return self._found[number]
        if self._ask is None:
            raise SchemaMissingError(f"no file contains schema {number}")
        missing = self._missing.get(number, (0.0, ""))
        for again_s, reason in (missing, (self._others_s, TOO_MANY)):
            if self._clock_s() < again_s:
                raise SchemaMissingError(reason)
        try:
            found = self._asked(number)
        except SchemaMissingError as error:
            self._note(number, error)
            raise
        self._found[number] = found
        return found

    def _note(self, number: int, error: SchemaMissingError) -> None:
        """Delay further fetches of an id, and of other ids if required."""
        now_s = self._clock_s()
        recent = {one: told for one, told in self._missing.items() if told[0] > now_s}
        self._missing = recent | {number: (now_s + ASK_AGAIN_S, str(error))}
        if len(self._missing) >= MOST_UNKNOWN:
            self._others_s = min(again_s for again_s, _ in self._missing.values())

    def _asked(self, number: int) -> list[Any]:
        assert self._ask is not None
        try:
            answer = self._ask(f"/schemas/ids/{number}")
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise SchemaMissingError(f"schema {number} has the type {answer['schemaType']}")
            before = self._referred(answer.get("references", ()), set())
            return [*before, json.loads(answer["schema"])]
        except (
            OSError,
            HTTPException,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            if isinstance(error, SchemaMissingError):
                raise
            if silence := _silence(error):
                raise RegistrySilentError(silence) from error
            raise SchemaMissingError(f"schema {number} was not found: {_said(error)}") from error

    def _referred(self, references: Any, seen: set[tuple[str, int]]) -> list[Any]:
        found: list[Any] = []
        for one in references:
            place = (str(one["subject"]), int(one["version"]))
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MAX_REFERENCES or self._ask is None:
                raise SchemaMissingError(f"it refers to more than {MAX_REFERENCES} schemas")
            subject = urllib.parse.quote(place[0], safe="")
            answer = self._ask(f"/subjects/{subject}/versions/{place[1]}")
            found += self._referred(answer.get("references", ()), seen)
            found.append(json.loads(answer["schema"]))
        return found


def _said(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the registry answers with status {error.code}"
    if isinstance(error, AttributeError | KeyError | TypeError):
        return "its answer is not that of a schema registry"
    return "its answer is cut off" if isinstance(error, HTTPException) else told_by(error)


def _silence(error: Exception) -> str:
    """Why the registry does not say whether it has a schema; empty if the error says that."""
    if isinstance(error, urllib.error.HTTPError):
        if error.code in NO_SCHEMA:
            return ""
        return _said(error)
    if isinstance(error, RefusedError):
        return f"the registry refuses: {error}"
    return f"the registry does not answer: {told_by(error)}" if isinstance(error, OSError) else ""


def asking(registry: Registry) -> Callable[[str], Any]:
    """Returns a function that fetches JSON at a path of the registry. It raises OSError,
    HTTPException, ValueError, RecursionError. Raises OSError for an unusable ca_path."""
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if registry.token:
        headers["Authorization"] = f"Bearer {registry.token}"
    elif registry.user:
        login = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    try:
        context = ssl.create_default_context(cafile=registry.ca_path or None)
    except OSError as error:  # it does not name the file
        text = f"registry.ca_path: {registry.ca_path} cannot be used: {told_by(error)}"
        raise OSError(text) from error
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), NoRedirects()
    )

    def ask(path: str) -> Any:
        request = urllib.request.Request(registry.url.rstrip("/") + path, headers=headers)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(MAX_BYTES))

    return ask
