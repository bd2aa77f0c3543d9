"""Schemas of a registry that responds or fails."""

import json
import urllib.error
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected

import pytest

from services.definitions.avro_schemas import parsed
from services.runtime.clickhouse import ServerRefusedError
from services.watcher.decoding import framed_avro
from services.watcher.schema_ids import (
    ASK_AGAIN_S,
    FRAMINGS,
    MOST_UNKNOWN,
    TOO_MANY,
    RegistrySilentError,
    SchemaIds,
    SchemaMissingError,
    UndecodableError,
)

pytestmark = pytest.mark.unit

GOOD = {"schema": json.dumps("string")}
NESTED = '{"type": "array", "items": ' * 50_000


class Asked:
    """Returns schemas by id, and records the requested ids. error: raised for the others."""

    def __init__(self, **known):
        self.known = {int(name[1:]): value for name, value in known.items()}
        self.ids, self.error = [], status(404)
        self.now_s = 0.0

    def __call__(self, path):
        number = int(path.rpartition("/")[2])
        self.ids.append(number)
        if number not in self.known:
            raise self.error
        return self.known[number]

    def clock(self):
        return self.now_s


def status(code):
    return urllib.error.HTTPError("http://r/", code, "", {}, None)


def reason(ids, number):
    with pytest.raises(SchemaMissingError) as raised:
        ids.schema(number)
    return str(raised.value)


def test_few_unknown_ids_are_asked_for_in_a_while():
    ask = Asked(_7=GOOD, _8=GOOD)
    ids = SchemaIds({}, ask, ask.clock)
    assert ids.schema(7) == ["string"]
    reasons = [reason(ids, number) for number in range(100, 1_100)]
    assert ask.ids == [7, *range(100, 100 + MOST_UNKNOWN)]
    assert reasons[0].startswith("schema 100 was not found: ")
    assert "status 404" in reasons[0]
    assert {*reasons[MOST_UNKNOWN:]} == {TOO_MANY} == {reason(ids, 8)}
    assert ids.schema(7) == ["string"]
    assert len(ids._missing) == MOST_UNKNOWN
    ask.now_s = ASK_AGAIN_S
    assert ids.schema(8) == ["string"]
    assert reason(ids, 2_000).startswith("schema 2000 was not found")
    assert len(ids._missing) == 1


SILENCE = "the registry does not answer: "
SILENT = [
    (TimeoutError("timed out"), SILENCE),
    (urllib.error.URLError(ConnectionRefusedError("refused")), SILENCE),
    (RemoteDisconnected("closed"), SILENCE),
    (ServerRefusedError("The server redirects"), "the registry refuses: The server redirects"),
    *(
        (status(code), f"the registry answers with status {code}")
        for code in (302, 401, 403, 408, 429, 500, 503)
    ),
]


@pytest.mark.parametrize("code", [400, 404, 422])
def test_an_id_that_the_registry_refuses_is_a_reason(code):
    ask = Asked()
    ask.error = status(code)
    with pytest.raises(UndecodableError, match="schema 1 was not found"):
        framed_avro(SchemaIds({}, ask, ask.clock))(b"\0\0\0\0\1x")


@pytest.mark.parametrize(("error", "said"), SILENT)
def test_a_registry_that_does_not_say_what_it_has_says_nothing_of_a_record(error, said):
    ask = Asked(_7=GOOD)
    ask.error = error
    ids = SchemaIds({}, ask, ask.clock)
    decode = framed_avro(ids)
    with pytest.raises(RegistrySilentError, match=said):
        decode(b"\0\0\0\0\1x")
    assert ids.schema(7) == ["string"]
    ask.known[1] = GOOD
    assert decode(b"\0\0\0\0\1\2x") == "x"
    assert ask.ids == [1, 7, 1]


@pytest.mark.parametrize("error", [BadStatusLine("x"), IncompleteRead(b""), RecursionError()])
def test_an_answer_that_is_none_is_a_reason(error):
    ask = Asked()
    ask.error = error
    found = reason(SchemaIds({}, ask), 1)
    assert found.startswith("schema 1 was not found: ")
    assert type(error).__name__ not in found


def test_a_schema_that_is_too_deep_refuses_its_records():
    deep = json.loads("[" * 500 + "]" * 500)
    decode = framed_avro(SchemaIds({}, Asked(_1={"schema": NESTED}, _2={"schema": "[]"})))
    with pytest.raises(UndecodableError, match="schema 1 was not found: it is nested too deeply"):
        decode(b"\0\0\0\0\1x")
    ids = SchemaIds({})
    ids._known[3] = [deep]
    with pytest.raises(UndecodableError, match="not an Avro schema: it is nested too deeply"):
        framed_avro(ids)(b"\0\0\0\0\3x")


def test_a_schema_that_is_none_is_parsed_once():
    asked = []
    ids = SchemaIds({}, Asked(_1={"schema": '"nonsense"'}, _2=GOOD))
    decode = framed_avro(ids, parse=lambda schemas: asked.append(schemas) or parsed(schemas))
    for _ in range(3):
        with pytest.raises(UndecodableError, match="not an Avro schema"):
            decode(b"\0\0\0\0\1x")
        assert decode(b"\0\0\0\0\2\2x") == "x"
    assert asked == [["nonsense"], ["string"]]


def test_a_reference_that_was_deleted_softly_is_read():
    place = "/subjects/site/versions/2"
    order = {"type": "array", "items": "Site"}
    site = {"type": "enum", "name": "Site", "symbols": ["north"]}
    known = {
        "/schemas/ids/1": {
            "schema": json.dumps(order),
            "references": [{"name": "Site", "subject": "site", "version": 2}],
        },
        f"{place}?deleted=true": {"schema": json.dumps(site)},
    }

    def ask(path):
        if path not in known:
            raise status(404)
        return known[path]

    assert framed_avro(SchemaIds({}, ask))(b"\0\0\0\0\1\2\0\0") == ["north"]


def test_a_schema_is_asked_for_by_the_guid_of_its_records():
    guid = "01234567-8123-4567-8123-456781234567"
    asked = []
    ids = SchemaIds({}, lambda path: asked.append(path) or GOOD)
    frame = b"\1" + bytes.fromhex(guid.replace("-", ""))
    assert framed_avro(ids)(frame + b"\2x") == "x"
    assert asked == [f"/schemas/guids/{guid}"]


def test_the_branches_of_a_union_can_be_references():
    """As Confluent's registry has several types in one topic."""
    subjects = {"a": '"long"', "b": '{"type": "record", "name": "B", "fields": []}'}
    known = {
        f"/subjects/{name}/versions/1": {"schema": text} for name, text in subjects.items()
    } | {
        "/schemas/ids/1": {
            "schema": '["long", "B"]',
            "references": [{"subject": name, "version": 1} for name in subjects],
        }
    }
    decode = framed_avro(SchemaIds({}, known.__getitem__))
    assert decode(b"\0\0\0\0\1\2") == {}
    assert decode(b"\0\0\0\0\1\0\6") == 3


def test_apicurio_is_asked_for_a_schema_with_those_that_it_refers_to():
    """Its answer is the schema itself."""
    asked = []
    ids = SchemaIds({}, lambda path: asked.append(path) or {"type": "string"})
    decode = framed_avro(ids, FRAMINGS["apicurio"])
    assert decode(bytes(7) + b"\1\2" + b"\2x") == "x"
    assert asked == ["/ids/globalIds/258?dereference=true&references=DEREFERENCE"]


def test_an_id_that_apicurio_does_not_know_is_a_reason():
    ask = Asked()
    decode = framed_avro(SchemaIds({}, lambda _path: ask("/7")), FRAMINGS["apicurio"])
    with pytest.raises(UndecodableError, match=r"schema 7 was not found: .* status 404"):
        decode(bytes(8) + b"\7x")
