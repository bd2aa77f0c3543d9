"""Watches that are started and ended where the watcher runs."""

import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from schemas.validation_errors import DefinitionError
from services.definitions.descriptor_sets import message_class
from services.definitions.watches import kept_watch, kept_watches, read_cluster, read_watch
from services.runtime.settings import EXIT_USAGE
from services.watcher.__main__ import main

pytestmark = pytest.mark.unit
WATCH = """
name = "orders"
[[inputs]]
topic = "in"
[[outputs]]
topic = "out"
"""


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_watch_is_kept_updated_and_ended(data, tmp_path, capsys):
    file = tmp_path / "orders.toml"
    file.write_text(WATCH)
    main(["keep", str(file)])
    main(["keep", str(file)])
    assert kept_watch(data, "orders").topics() == ("in", "out")
    main(["end", "orders"])
    assert kept_watches(data) == {}
    assert capsys.readouterr().out.splitlines() == [
        "The watch orders starts.",
        "The watch orders is unchanged.",
        "The watch orders is ended.",
    ]


CLUSTER = """
[kafka]
bootstrap = "k:9"
[kafka.properties]
"ssl.ca.location" = "ca.pem"
"ssl.crl.location" = "/dev/null"
"https.ca.location" = "probe"
[registry]
url = "https://r"
ca_path = "ca.pem"
"""


def test_certificates_are_found_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    file, ca = tmp_path / "mine" / "orders.toml", tmp_path / "mine" / "ca.pem"
    file.write_text(WATCH + CLUSTER)
    monkeypatch.chdir(tmp_path)
    for read in (read_watch, read_cluster):
        ca.unlink(missing_ok=True)
        with pytest.raises(DefinitionError) as refused:
            read(Path("mine/orders.toml"))
        said = f"mine/orders.toml: kafka.properties.ssl.ca.location: {ca} does not exist."
        assert str(refused.value) == said
        ca.touch()
        found = read(Path("mine/orders.toml"))
        assert found.registry.ca_path == str(ca)
        assert found.kafka.properties == {
            "ssl.ca.location": str(ca),
            "ssl.crl.location": "/dev/null",
            "https.ca.location": "probe",
        }


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "Expecting property name"), ('{"type": "recrod"}', "there is no type ")],
)
def test_a_file_that_is_no_avro_schema_is_named(tmp_path, text, said):
    file, schema = tmp_path / "orders.toml", tmp_path / "order.avsc"
    avro = '[[inputs]]\nformat = "avro"\nschemas = ["order.avsc"]\nidentity = ["value.id"]'
    file.write_text(WATCH.replace("[[inputs]]", avro))
    good = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
    schema.write_text(good)
    assert read_watch(file).inputs[0].schemas == (good,)
    schema.write_text(text)
    with pytest.raises(DefinitionError) as refused:
        read_watch(file)
    assert str(refused.value).startswith(f"{schema} is not an Avro schema: {said}")


def a_descriptor_set(*imports):
    """A descriptor set with shop.Order and, inside it, Line."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(imports)
    file.message_type.add(name="Order").nested_type.add(name="Line")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize(
    ("content", "message", "facts"),
    [
        (
            a_descriptor_set(),
            "shop.Ordre",
            ("no message shop.Ordre", "shop.Order, shop.Order.Line"),
        ),
        (a_descriptor_set("money.proto"), "shop.Order", ("money.proto", "--include_imports")),
        (b"syntax = 'proto3';", "shop.Order", ("not a descriptor set", "--descriptor_set_out")),
        (b"", "shop.Order", ("not a descriptor set",)),
    ],
)
def test_a_descriptor_set_of_no_use_is_refused_before_anything_starts(
    tmp_path, content, message, facts
):
    file = tmp_path / "orders.toml"
    (tmp_path / "order.binpb").write_bytes(content)
    told = f'format = "protobuf"\nschemas = ["order.binpb"]\nmessage = "{message}"'
    file.write_text(WATCH.replace("[[inputs]]", f'[[inputs]]\n{told}\nidentity = ["value.id"]'))
    with pytest.raises(DefinitionError) as refused:
        read_watch(file)
    assert "order.binpb" in str(refused.value)
    assert all(one in str(refused.value) for one in facts)


@pytest.mark.parametrize("number", ["abc", "-1", "01234567-8123-4567-8123"])
def test_an_id_that_no_schema_has_is_refused(tmp_path, number):
    file = tmp_path / "orders.toml"
    ids = f'[[inputs]]\nschema_ids = {{ "{number}" = "order.avsc" }}'
    file.write_text(WATCH.replace("[[inputs]]", ids))
    with pytest.raises(DefinitionError, match="must be a number or a GUID"):
        read_watch(file)


SITES = {"type": "record", "name": "Site", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "site", "type": ["null", SITES]},
        {"name": "sites", "type": {"type": "array", "items": "Site"}},
        {"name": "labels", "type": {"type": "map", "values": "Site"}},
    ],
}
HAS = "; there it has: "
PATHS = [
    ("id", None),
    ("site.name", None),
    ("sites.0.name", None),
    ("labels.any.name", None),
    ("ids", f"{HAS}id, site, sites, labels"),
    ("site.nam", f"{HAS}name"),
    ("sites.0.nam", f"{HAS}name"),
    ("labels.any.nam", f"{HAS}name"),
    ("sites.name", ""),
    ("id.x", ""),
]


def of_path(folder, path, content, settings):
    """The sentence about a path of a topic whose schema file has a content; None if it is good."""
    file, schema = folder / "orders.toml", folder / "order"
    schema.write_bytes(content)
    told = f'{settings}\nschemas = ["order"]\nidentity = ["value.{path}"]'
    file.write_text(WATCH.replace("[[inputs]]", f"[[inputs]]\n{told}"))
    try:
        read_watch(file)
    except DefinitionError as refused:
        return str(refused).removeprefix(f"{schema} has no field {path}").removesuffix(".")
    return None


@pytest.mark.parametrize(("path", "sentence"), PATHS)
def test_a_path_that_an_avro_schema_does_not_have_is_refused(tmp_path, path, sentence):
    content = json.dumps(ORDER).encode()
    assert of_path(tmp_path, path, content, 'format = "avro"') == sentence


@pytest.mark.parametrize(("path", "sentence"), PATHS)
def test_a_path_that_a_message_does_not_have_is_refused(tmp_path, path, sentence):
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    site, order = file.message_type.add(name="Site"), file.message_type.add(name="Order")
    site.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="LabelsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    a_site = {"type": kinds.TYPE_MESSAGE, "type_name": ".shop.Site"}
    entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, **a_site)
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="site", number=2, label=kinds.LABEL_OPTIONAL, **a_site)
    order.field.add(name="sites", number=3, label=kinds.LABEL_REPEATED, **a_site)
    labels = {"type": kinds.TYPE_MESSAGE, "type_name": ".shop.Order.LabelsEntry"}
    order.field.add(name="labels", number=4, label=kinds.LABEL_REPEATED, **labels)
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    settings = 'format = "protobuf"\nmessage = "shop.Order"'
    assert of_path(tmp_path, path, content, settings) == sentence


def test_imports_of_google_protobuf_need_not_be_in_a_descriptor_set():
    content = a_descriptor_set("google/protobuf/timestamp.proto", "google/protobuf/type.proto")
    assert message_class(content, "shop.Order").DESCRIPTOR.full_name == "shop.Order"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["keep", "/nowhere.toml"], "/nowhere.toml cannot be read"),
        (["end", "orders"], "no watch 'orders'"),
        (["start"], "usage: "),
    ],
)
def test_a_mistake_is_one_sentence(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_USAGE
    assert said in capsys.readouterr().err
