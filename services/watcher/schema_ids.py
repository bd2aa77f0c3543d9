"""Headers before watched values, and the schemas that their ids stand for.

A `Framing` separates the header from the value. Confluent's is 0 and a number, or 1 and a GUID;
Apicurio's, before its release 3, 0 and a number of eight bytes; that of AWS Glue 3, a byte for the
compression, and a GUID. Any of them may be in a header of the Kafka record instead, whence
`Framing.with_header` puts it before the value; AWS Glue has none.

A schema is in a file or in a registry: that of Confluent, or Apicurio's own interface. AWS Glue is
not asked. Schemas are immutable, so each is fetched once. A missing one is fetched again after a
while, as it may have been registered since. Records may contain any id, so the number of unknown
ids fetched in that time is limited. Only some statuses (NO_SCHEMA) say that a schema does not
exist. A registry that does not answer, or answers with another status, is an error of its own: it
says nothing about a record.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from uuid import UUID

from schemas.codec import told_by
from schemas.watch import Registry
from services.runtime.clickhouse import NoRedirects, ServerRefusedError

TIMEOUT_S: Final = 5.0
ASK_AGAIN_S: Final = 30.0
# Statuses about the id itself: malformed, not found (Confluent's error codes 40401 to 40403),
# unprocessable.
NO_SCHEMA: Final = (400, 404, 422)
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 200
MOST_UNKNOWN: Final = 10  # fetched per ASK_AGAIN_S
TOO_MANY: Final = f"its schema is unknown, like {MOST_UNKNOWN} others requested recently"
_INLINED: Final = "?dereference=true&references=DEREFERENCE"  # in Apicurio's interfaces 2 and 3
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024  # of a compressed value


class GlobalId(int):
    """The id of a schema in the interface of Apicurio."""


SchemaId = int | UUID
Split = tuple[bytes, bytes, int]
Headers = list[tuple[str, bytes | None]] | None  # None if they cannot be read


class UndecodableError(ValueError):
    """A value cannot be decoded; the text gives the reason."""


class Framing(NamedTuple):
    """The header before a value. split: a value as its header, the bytes that have the rest, and
    where it starts in them; raises UndecodableError. id_of: the id of a schema in a header. names:
    headers of a Kafka record that may have it instead, of its value and of its key, with what
    precedes them."""

    split: Callable[[bytes], Split]
    id_of: Callable[[bytes], SchemaId]
    names: Mapping[str, Mapping[str, bytes]]

    def with_header(self, value: bytes, part: str, headers: Headers) -> bytes:
        """The value after its header, also if a header of the record has that. part: value or
        key."""
        known = self.names[part]
        for name, content in reversed(headers or ()):
            if name in known and content:
                return known[name] + content + value
        return value


def _headed(value: bytes, starts: tuple[bytes, ...], size: int, reason: str) -> Split:
    """A value with a header of so many bytes, which starts so."""
    if len(value) < size or not value.startswith(starts):
        raise UndecodableError(reason)
    return value[:size], value, size


def _split_confluent(value: bytes) -> Split:
    size = 17 if value[:1] == b"\1" else 5
    return _headed(value, (b"\0", b"\1"), size, "it does not start with 0 and a schema id")


def _confluent_id(frame: bytes) -> SchemaId:
    return int.from_bytes(frame[1:], "big") if frame[0] == 0 else UUID(bytes=frame[1:])


def _split_apicurio(value: bytes) -> Split:
    reason = "it does not start with 0 and a schema id of eight bytes"
    return _headed(value, (b"\0",), 9, reason)


def _split_glue(value: bytes) -> Split:
    """The second byte says whether the rest is compressed."""
    reason = "it does not start with the header of AWS Glue"
    frame, _, size = _headed(value, (b"\3\0", b"\3\5"), 18, reason)
    if frame[1] == 0:
        return frame, value, size
    inflate = zlib.decompressobj()
    try:
        whole = inflate.decompress(value[size:], MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise UndecodableError("it cannot be decompressed") from error
    if not inflate.eof:
        limit = f"it has more than {MAX_INFLATED_BYTES} bytes"
        raise UndecodableError(limit if inflate.unconsumed_tail else "it cannot be decompressed")
    return frame, whole, 0


def _in_headers(name: str, before: bytes = b"") -> Mapping[str, Mapping[str, bytes]]:
    return {part: {name.format(part): before} for part in ("value", "key")}


FRAMINGS: Final[Mapping[str, Framing]] = {
    "confluent": Framing(_split_confluent, _confluent_id, _in_headers("__{}_schema_id")),
    "apicurio": Framing(
        _split_apicurio,
        lambda frame: GlobalId.from_bytes(frame[1:], "big"),
        _in_headers("apicurio.{}.globalId", b"\0"),
    ),
    "glue": Framing(_split_glue, lambda frame: UUID(bytes=frame[2:]), {"value": {}, "key": {}}),
}


def framing_of(kind: str) -> Framing | None:
    """The framing of a format, by the end of its name; None if it has none."""
    return FRAMINGS.get(kind.rpartition("-")[2])


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
        self._known: dict[SchemaId, list[Any]] = {
            int(name) if name.isdecimal() else UUID(name): [json.loads(text)]
            for name, text in known.items()
        }
        self._missing: dict[SchemaId, tuple[float, str]] = {}  # retry time and reason
        self._others_s = 0.0  # retry time of ids that were not fetched
        self._ask = ask
        self._clock_s = clock_s

    def schema(self, number: SchemaId) -> list[Any]:
        """The schema with an id, last, after those that it refers to. Raises SchemaMissingError,
        RegistrySilentError."""
        if number in self._known:
            return self._known[number]
        if self._ask is None:
            raise SchemaMissingError(f"no file contains schema {number}")
        missing = self._missing.get(number, (0.0, ""))
        for again_s, reason in (missing, (self._others_s, TOO_MANY)):
            if self._clock_s() < again_s:
                raise SchemaMissingError(reason)
        try:
            result = self._asked(number)
        except SchemaMissingError as error:
            self._note(number, error)
            raise
        self._known[number] = result
        return result

    def _note(self, number: SchemaId, error: SchemaMissingError) -> None:
        """Delay further fetches of an id, and of other ids if required."""
        now_s = self._clock_s()
        recent = {each: entry for each, entry in self._missing.items() if entry[0] > now_s}
        self._missing = recent | {number: (now_s + ASK_AGAIN_S, str(error))}
        if len(self._missing) >= MOST_UNKNOWN:
            self._others_s = min(again_s for again_s, _ in self._missing.values())

    def _asked(self, number: SchemaId) -> list[Any]:
        assert self._ask is not None
        try:
            if isinstance(number, GlobalId):
                return [self._ask(f"/ids/globalIds/{number:d}{_INLINED}")]
            kind = "ids" if isinstance(number, int) else "guids"
            answer = self._ask(f"/schemas/{kind}/{number}")
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
        result: list[Any] = []
        for reference in references:
            place = (str(reference["subject"]), int(reference["version"]))
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MAX_REFERENCES or self._ask is None:
                raise SchemaMissingError(f"it refers to more than {MAX_REFERENCES} schemas")
            subject = urllib.parse.quote(place[0], safe="")
            answer = self._version(f"/subjects/{subject}/versions/{place[1]}")
            result += self._referred(answer.get("references", ()), seen)
            result.append(json.loads(answer["schema"]))
        return result

    def _version(self, path: str) -> Any:
        """A version of a subject, which may have been deleted softly since."""
        assert self._ask is not None
        try:
            return self._ask(path)
        except urllib.error.HTTPError as error:
            if error.code not in NO_SCHEMA:
                raise
        return self._ask(f"{path}?deleted=true")


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
    if isinstance(error, ServerRefusedError):
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
