"""Settings inferred from two topics."""

import json
import tomllib
import zlib
from types import SimpleNamespace

import pytest
from confluent_kafka import TopicPartition

from schemas.watch import Cluster, Watch, WatchedKafka
from services.runtime.settings import EXIT_USAGE
from services.watcher import inferring
from services.watcher.inferring import guesses, newest, path_seen, seen, written
from services.watcher.schema_ids import RegistrySilentError, SchemaIds
from tests.unit.watcher.records import Unreadable, datum, message

pytestmark = pytest.mark.unit

SHIPPED = {
    "type": "record",
    "name": "Shipped",
    "fields": [{"name": "order", "type": "string"}, {"name": "region", "type": "string"}],
}
KAFKA = WatchedKafka(bootstrap="kafka:9092")


def orders(count=300):
    return [
        message(
            "orders",
            json.dumps({"id": f"o-{n}", "customer": {"name": f"c{n % 7}"}, "n": n}).encode(),
            f"c{n % 7}".encode(),
            1_000 + n,
        )
        for n in range(count)
    ]


def shipped(count=300, every=1):
    return [
        message(
            "shipped",
            b"\0\0\0\0\x03" + datum(SHIPPED, {"order": f"o-{n}", "region": "north"}),
            f"c{n % 7}".encode(),
            1_010 + n,
        )
        for n in range(0, count, every)
    ]


def guessed(inputs, outputs):
    ids = SchemaIds({"3": json.dumps(SHIPPED)})
    sides = seen("orders", inputs, ids), seen("shipped", outputs, ids)
    text = "\n".join(written(KAFKA, None, *sides))
    return tomllib.loads(text) | {"text": text}


def test_the_identity_is_the_path_whose_values_are_found_and_unlike_each_other():
    found = guessed(orders(), shipped())
    assert found["inputs"] == [
        {"topic": "orders", "format": "json", "identity": ["value.id"]},
    ]
    assert found["outputs"] == [
        {"topic": "shipped", "format": "avro-confluent", "identity": ["value.order"]},
    ]
    assert found["relation"] == {"kind": "one_to_one"}
    assert "100% of the outputs have the identity of an input" in found["text"]


def test_json_with_a_frame_and_keys_with_fields_are_seen():
    frame = b"\0\0\0\0\x05"
    told = [(n, json.dumps({"id": n, "name": "x"}).encode()) for n in range(100, 160)]
    inputs = [message("orders", frame + text, b"k", 1_000 + n) for n, text in told]
    outputs = [message("shipped", b"?", text, 1_010 + n) for n, text in told]
    found = guessed(inputs, outputs)
    assert found["inputs"] == [
        {"topic": "orders", "format": "json-confluent", "identity": ["value.id"]},
    ]
    assert found["outputs"] == [
        {"topic": "shipped", "format": "bytes", "key": "json", "identity": ["key.id"]},
    ]


def test_inputs_without_an_output_make_it_a_filter():
    assert guessed(orders(), shipped(every=3))["relation"] == {"kind": "filter"}


def test_what_is_guessed_is_a_watch_file():
    found = guessed(orders(), shipped())
    found.pop("text")
    found["registry"] = {"url": "http://registry:8081"}
    assert Watch.model_validate(found).name == "orders"


def of_field(topic, name, values):
    return [message(topic, json.dumps({name: v, "n": v}).encode(), None, v) for v in values]


def test_a_path_of_topics_is_guessed_by_the_values_that_all_of_them_have():
    """`n` is the same in the first and the last topic only: the identity is that of all three."""
    orders_in = [message("orders", b'{"id": "o-%d", "n": %d}' % (n, n), None, n) for n in range(90)]
    checked = [message("checked", b'{"order": "o-%d"}' % n, None, n) for n in range(90)]
    done = [message("9.done", b'{"ref": "o-%d", "n": %d}' % (n, n), None, n) for n in range(90)]
    sides = [seen(messages[0].topic(), messages, None) for messages in (orders_in, checked, done)]
    text = "\n".join(written(KAFKA, None, *sides))
    found = Watch.model_validate(tomllib.loads(text))
    topics = (*found.inputs, *found.through, *found.outputs)
    assert [(each.topic, each.identity) for each in topics] == [
        ("orders", ("value.id",)),
        ("checked", ("value.order",)),
        ("9.done", ("value.ref",)),
    ]
    assert [(hop.name, hop.inputs, hop.outputs) for hop in found.hops] == [
        ("checked", ("orders",), ("checked",)),
        ("hop_2", ("checked",), ("9.done",)),
    ]
    assert "# 90 of checked, 90 of 9.done. Check every line." in text
    assert "100% of the records of checked have the identity of an input." in text
    assert "# Also: value.n = value.n, found 100%." in text


def test_a_path_whose_topics_have_nothing_in_common_says_so():
    values = {"a": range(50), "b": range(100, 150), "c": range(50)}
    sides = [seen(name, of_field(name, "id", each), None) for name, each in values.items()]
    text = "\n".join(written(KAFKA, None, *sides))
    assert "No path of the input has the values of paths of all other topics" in text
    assert [each["topic"] for each in tomllib.loads(text)["through"]] == ["b"]


def test_hops_have_names_of_their_own():
    sides = [
        seen(name, of_field(name, "id", range(50)), None) for name in ("a", "B", "b", "output")
    ]
    hops = tomllib.loads("\n".join(written(KAFKA, None, *sides)))["hops"]
    assert [hop["name"] for hop in hops] == ["b", "hop_2", "hop_3"]


def test_keys_that_are_numbers_are_told_from_texts():
    inputs = [message("a", b"\x01", n.to_bytes(8, "big"), n) for n in range(50)]
    outputs = [message("b", json.dumps({"id": n}).encode(), None, n) for n in range(50)]
    sides = seen("a", inputs, None), seen("b", outputs, None)
    assert [one.key for one in sides] == ["long", "text"]
    best = guesses(*sides)[0]
    assert (best.input_path, best.output_path, best.share) == ("key", "value.id", 1.0)


def inferred(inputs, outputs, ids=None):
    """The watch of a guess, which can be watched."""
    sides = path_seen(lambda topic, *_: {"a": inputs, "b": outputs}[topic], "ab", ids)
    found = tomllib.loads("\n".join(written(KAFKA, None, *sides)))
    return Watch.model_validate({"registry": {"url": "http://registry:8081"}, **found})


def change(number, operation="c"):
    state = {"id": number}
    row = {"before": state, "after": None} if operation == "d" else {"before": None, "after": state}
    return json.dumps(row | {"op": operation}).encode()


def test_tombstones_and_deletes_do_not_hide_the_format():
    keys = [b'{"id": %d}' % n for n in range(5)]
    inputs = [message("a", change(n), key, n) for n, key in enumerate(keys)]
    inputs += [message("a", change(n, "d"), key, 9) for n, key in enumerate(keys)]
    inputs += [message("a", None, key, 9) for key in keys * 20]
    outputs = [message("b", b'{"id": %d}' % n, key, n) for n, key in enumerate(keys)]
    found = inferred(inputs, outputs)
    assert (found.inputs[0].format, found.inputs[0].identity) == ("json", ("value.after.id",))
    assert found.outputs[0].identity == ("key.id",)
    assert found.relation.kind == "one_to_one"


def test_one_type_of_several_is_chosen():
    schemas = {
        "21": '{"type": "record", "name": "shop.Placed", '
        '"fields": [{"name": "id", "type": "string"}]}',
        "22": '{"type": "record", "name": "shop.Paid", '
        '"fields": [{"name": "sum", "type": "long"}]}',
    }
    inputs = [message("a", b"\0\0\0\0\x15\x04o%d" % n, b"k", n) for n in range(9)]
    inputs += [message("a", b"\0\0\0\0\x16" + bytes([2 * n]), b"k", n) for n in range(9)]
    outputs = [message("b", b'{"order": "o%d"}' % n, b"k", n) for n in range(9)]
    found = inferred(inputs, outputs, SchemaIds(schemas)).inputs[0]
    assert (found.identity, found.message) == (("value.id",), "shop.Placed")


def test_objects_that_have_the_path_are_chosen():
    inputs = [message("a", b'{"placed": {"id": "o%d"}}' % n, None, n) for n in range(20)]
    inputs += [message("a", b'{"paid": {"sum": %d}}' % n, None, n) for n in range(40)]
    outputs = [message("b", b'{"order": "o%d"}' % n, None, n) for n in range(20)]
    found = inferred(inputs, outputs)
    assert found.inputs[0].where == {"value.placed.id": True}
    assert found.outputs[0].where == {}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (lambda n: b'"c%d"' % n, "json"),
        (lambda n: b"\0\0\0\0\x0b\x04c%d" % n, "avro-confluent"),
    ],
)
def test_keys_with_a_format_are_values(key, kind):
    inputs = [message("a", b"\x01", key(n), n) for n in range(9)]
    outputs = [message("b", b'{"id": "c%d"}' % n, None, n) for n in range(9)]
    found = inferred(inputs, outputs, SchemaIds({"11": '"string"'}))
    assert (found.inputs[0].key, found.inputs[0].identity) == (kind, ("key",))


@pytest.mark.parametrize(
    ("value", "kind", "path", "more"),
    [
        (lambda n: b"%d;c%d;x" % (n, n % 3), "csv", "value.0", 'separator = ";"'),
        (lambda n: b'"o-%d",%d,x' % (n, n % 3), "csv", "value.0", ""),
        (lambda n: b'{"after": "{\\"_id\\": %d}"}' % n, "json", "value.after._id", ""),
        (lambda n: bytes(8) + b'\5{"id": "o%d"}' % n, "json-apicurio", "value.id", ""),
        (lambda n: b"\3\0" + bytes(16) + b'{"id": "o%d"}' % n, "json-glue", "value.id", ""),
        (lambda n: bytes(8) + b"\5\2" + b"%d" % (n % 10), "avro-apicurio", "value", ""),
    ],
)
def test_less_frequent_formats_are_seen(value, kind, path, more):
    inputs = [message("a", value(n), None, n) for n in range(9)]
    outputs = [message("b", value(n), None, n) for n in range(9)]
    text = "\n".join(written(KAFKA, None, seen("a", inputs, None), seen("b", outputs, None)))
    found = tomllib.loads(text)["inputs"][0]
    assert found["format"] == kind
    assert more in text
    if path != "value":
        assert found["identity"] == [path]


def test_schemas_of_aws_glue_are_to_be_given_as_files():
    inputs = [
        message("a", b"\3\5" + bytes(16) + zlib.compress(b"\2x"), b"%d" % n, n) for n in range(9)
    ]
    text = "\n".join(written(KAFKA, None, *[seen(name, inputs, None) for name in "ab"]))
    found = tomllib.loads(text)["inputs"][0]
    assert (found["format"], found["schema_ids"], found["identity"]) == ("avro-glue", {}, ["key"])
    assert Watch.model_validate(tomllib.loads(text)).name == "a"


BEGIN_MS = 1_767_225_600_000


@pytest.mark.parametrize("kind", ["time", "session", "store"])
def test_keys_that_end_with_a_window_are_seen(kind):
    def key(n):
        start = BEGIN_MS + 1_500 * (n // 3)
        ends = [start + 999, start] if kind == "session" else [start]
        tail = b"".join(each.to_bytes(8, "big") for each in ends)
        return b"s%d" % (n % 3) + tail + (n.to_bytes(4, "big") if kind == "store" else b"")

    inputs = [message("a", b'{"v": 1}', b"s%d" % (n % 3), BEGIN_MS + n) for n in range(30)]
    outputs = [message("b", b'{"n": 3}', key(n), BEGIN_MS + 1_500 * n) for n in range(9)]
    found = inferred(inputs, outputs)
    assert found.inputs[0].time == "timestamp"
    assert (found.outputs[0].key_window, found.outputs[0].identity) == (kind, ("key",))
    assert found.outputs[0].window_ms == (0 if kind == "session" else 1_500)
    assert found.relation.kind == "window"


def test_windows_in_the_keys_of_all_topics_are_a_part_of_the_identity():
    """Of a copied topic, or of a path of them."""
    keys = [b"s1" + (BEGIN_MS + n).to_bytes(8, "big") for n in range(9)]
    topics = {name: [message(name, b"x", key, n) for n, key in enumerate(keys)] for name in "abc"}
    found = inferred(topics["a"], topics["b"])
    assert (found.outputs[0].key_window, found.relation.kind) == ("", "one_to_one")
    topics["a"] = topics["b"] = [message("a", b"x", b"s1", n) for n in range(9)]
    sides = path_seen(lambda topic, *_: topics[topic], "abc", None)
    path = tomllib.loads("\n".join(written(KAFKA, None, *sides)))
    assert Watch.model_validate(path).outputs[0].key_window == ""


def test_topics_that_share_nothing_say_so():
    inputs = [message("a", b"x", b"k%d" % n, n) for n in range(50)]
    outputs = [message("b", b"y", b"q%d" % n, n) for n in range(50)]
    text = "\n".join(written(KAFKA, None, seen("a", inputs, None), seen("b", outputs, None)))
    assert "No path of the input has the values of a path of the output" in text


@pytest.mark.parametrize("name", ["a\nb = 1", "a\x7f", "\ud800", "", "x" * 201])
def test_names_that_are_no_paths_are_left_out(name):
    inputs = [message("a", json.dumps({name: n}).encode(), None, n) for n in range(50)]
    outputs = [message("b", json.dumps({"id": n}).encode(), None, n) for n in range(50)]
    text = "\n".join(written(KAFKA, None, seen("a", inputs, None), seen("b", outputs, None)))
    assert "No path of the input has the values of a path of the output" in text
    assert len(tomllib.loads(text)) == 4


def test_headers_whose_names_are_no_paths_are_left_out():
    headers = [[("a\nb = 1", b"%d" % n)] for n in range(50)]
    sides = [
        seen(topic, [message(topic, b"x", None, n, headers=headers[n]) for n in range(50)], None)
        for topic in "ab"
    ]
    text = "\n".join(written(KAFKA, None, *sides))
    assert "No path of the input has the values of a path of the output" in text


def test_headers_whose_names_are_not_utf_8_are_read_once():
    sides = seen("a", [Unreadable()], None), seen("b", [Unreadable()], None)
    text = "\n".join(written(KAFKA, None, *sides))
    assert 'identity = ["key"]' in text


def test_names_in_any_letters_are_written_as_they_are():
    values = [json.dumps({'größe 🚚 "q\\': n}).encode() for n in range(50)]
    sides = [
        seen(topic, [message(topic, value, None, n) for n, value in enumerate(values)], None)
        for topic in "ab"
    ]
    found = tomllib.loads("\n".join(written(KAFKA, None, *sides)))
    assert found["inputs"][0]["identity"] == ['value.größe 🚚 "q\\']
    assert Watch.model_validate(found).name == "a"


def test_names_with_dots_are_written_in_quotation_marks():
    value = b'{"service": {"trace.id": "t%d"}}'
    inputs = [message("a", value % n, None, n) for n in range(50)]
    headers = [[("ce.id", b"t%d" % n)] for n in range(50)]
    outputs = [message("b", b"x", None, n, headers=headers[n]) for n in range(50)]
    found = inferred(inputs, outputs)
    assert found.inputs[0].identity == ('value.service."trace.id"',)
    assert found.outputs[0].identity == ("header.ce.id",)


def test_a_registry_that_does_not_answer_is_one_sentence():
    def silent(_path):
        raise TimeoutError("timed out")

    with pytest.raises(RegistrySilentError) as raised:
        path_seen(lambda *_: shipped(), ["orders", "shipped"], SchemaIds({}, silent))
    assert str(raised.value) == "the registry does not answer: it took too long"


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        (
            {"kafka": {"bootstrap": "k:9", "properties": {"ssl.ca": "x"}}},
            'Kafka at k:9 cannot be read: No such configuration property: "ssl.ca".',
        ),
        (
            {"kafka": {"bootstrap": "k:9"}, "registry": {"url": "https://r", "ca_path": "/no"}},
            "registry.ca_path: /no cannot be used: No such file or directory.",
        ),
    ],
    ids=["a property", "an authority"],
)
def test_a_wrong_setting_of_a_cluster_is_one_sentence(capsys, cluster, sentence):
    assert inferring.main(Cluster.model_validate(cluster), "orders", "shipped") == EXIT_USAGE
    assert capsys.readouterr().err == f"tidegauge: {sentence}\n"


class FastTopic:
    """A consumer of one partition with a record per millisecond, each read as assigned."""

    END = 100_000

    def __init__(self) -> None:
        self.next = 0

    def list_topics(self, topic, timeout):
        known = SimpleNamespace(error=None, partitions={0: None})
        return SimpleNamespace(topics={topic: known})

    def get_watermark_offsets(self, _place, _timeout):
        return 0, self.END

    def offsets_for_times(self, asked, _timeout):
        return [TopicPartition(one.topic, one.partition, one.offset) for one in asked]

    def assign(self, begins):
        self.next = begins[0].offset

    def consume(self, most, _timeout):
        first, self.next = self.next, self.next + most
        return [message("fast", b"x", None, n, offset=n) for n in range(first, self.next)]


def test_inputs_are_read_up_to_the_time_of_the_outputs():
    found = newest(FastTopic(), "fast", 1_000, until_ms=40_000)
    assert [one.offset() for one in found] == list(range(39_001, 40_001))


@pytest.mark.parametrize(
    ("times", "tries"),
    [
        ([1_000], [(5_000, 1_000), (50_000, 1_000), (5_000, None)]),
        ([-1], [(5_000, None), (50_000, None)]),
    ],
    ids=["outputs before all inputs", "outputs without a time"],
)
def test_inputs_are_read_whatever_the_times_of_the_outputs(times, tries):
    asked = []

    def read(topic, count, until_ms):
        if topic == "orders":
            asked.append((count, until_ms))
            return orders() if len(asked) == len(tries) else []
        return [message("shipped", json.dumps({"id": "o-7"}).encode(), None, n) for n in times]

    sides = path_seen(read, ["orders", "shipped"], None)
    assert asked == tries
    assert '"value.id"' in "\n".join(written(KAFKA, None, *sides))


def test_no_more_is_read_than_memory_allows():
    assert len(newest(FastTopic(), "fast", 5_000, max_bytes=600)) == 1_000
