"""Guesses a watch file from some hundred records of each topic of a path:

    python -m services.watcher.inferring INPUT [TOPIC …] OUTPUT

The cluster and the registry come as JSON (schemas.watch.Cluster) on standard input. It prints the
file, with its observations as comments, and writes nothing.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from schemas.codec import MARKER
from schemas.watch import (
    AVRO,
    JSON,
    Cluster,
    Format,
    KeyFormat,
    Registry,
    WatchedKafka,
    written_name,
)
from services.definitions.avro_schemas import parsed, type_name
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    SILENT,
    KafkaUnavailableError,
    partition_ids,
)
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings
from services.watcher.cluster import client_properties
from services.watcher.decoding import (
    Decode,
    decode_csv,
    decode_json,
    framed_avro,
    framed_json,
    within,
)
from services.watcher.extracting import KEY_WINDOWS, NUMBERS, headers_of, is_delete
from services.watcher.reading import READING
from services.watcher.records import text_of
from services.watcher.schema_ids import (
    FRAMINGS,
    Headers,
    RegistrySilentError,
    SchemaId,
    SchemaIds,
    UndecodableError,
    asking,
    framing_of,
)

OUTPUTS_READ: Final = 500
INPUTS_READ: Final = 5_000
MORE_INPUTS_READ: Final = 50_000  # if the first have no identity in common with the outputs
MOST_BYTES: Final = 200_000_000  # of values
READ_S: Final = 10.0
MOST_PATHS: Final = 200
MOST_DEPTH: Final = 6
GOOD: Final = 0.9
LEAST: Final = 0.1  # of the records of a topic have a path, if they are of several types
UNKNOWN_MS: Final = 60_000  # the length of the only window
ENVELOPES: Final[tuple[list[str], ...]] = ([], ["payload"])  # of change events
WINDOWS_MS: Final = range(1_000_000_000_000, 4_102_444_800_000)  # 2001 to 2100: starts of windows
MOST_CHARACTERS: Final = 200
MOST_OF_NAME: Final = 32  # of a hop
WHOLE: Final = "output"  # the stage of a whole path
COMMA: Final = ","
SEPARATORS: Final = (COMMA, ";", "\t", "|")


@dataclass(frozen=True)
class Seen:
    """Records of a topic and their guessed format. separator: of csv, else empty. headers: None if
    unreadable. values: decoded; None if undecodable. keys: the same, of keys with a format; of
    others their bytes, without windows. types: full names of Avro's types. key_window: as in a
    WatchedTopic; windows: their starts, or of sessions the last millisecond and the first. skipped:
    number of records without a value, and of deletes."""

    topic: str
    messages: list[Message]
    headers: list[Headers]
    format: Format
    separator: str
    key: KeyFormat
    values: list[Any]
    keys: list[Any]
    types: list[str]
    key_window: str
    windows: list[tuple[int, ...]]
    skipped: int

    @cached_property
    def texts(self) -> dict[str, list[bytes | None]]:
        """Text of each record by path, for the paths that most records have, or many records if the
        others can be told apart. A topic with deletes is known by its values, as a key has several
        records."""
        result: dict[str, list[bytes | None]] = {}
        for number, (headers, value, key) in enumerate(
            zip(self.headers, self.values, self.keys, strict=True)
        ):
            fields = chain(_fields(key, "key", 0), _fields(value, "value", 0))
            for path, text in chain(_leaves(headers, key), fields):
                if path not in result and len(result) < MOST_PATHS:
                    result[path] = [None] * len(self.messages)
                if path in result:
                    result[path][number] = text
        if self.skipped and any(path.startswith("value.") for path in result):
            result = {path: texts for path, texts in result.items() if path.startswith("value.")}
        return {path: texts for path, texts in result.items() if self._has(path, texts)}

    def _has(self, path: str, texts: list[bytes | None]) -> bool:
        share = 1 - texts.count(None) / len(texts)
        return share >= (LEAST if path.startswith("value.") else GOOD)

    def choice(self, path: str) -> str:
        """The line of the file that leaves out records without a path; empty if there are few."""
        texts = self.texts.get(path, [])
        if len(texts) - texts.count(None) >= GOOD * len(texts):
            return ""
        types = {kind for kind, text in zip(self.types, texts, strict=True) if text is not None}
        others = {kind for kind, text in zip(self.types, texts, strict=True) if text is None}
        if len(types) == 1 and all(types) and not types & others:
            return f"message = {json.dumps(types.pop())}"
        return f"where = {{ {json.dumps(path, ensure_ascii=False)} = true }}"


@dataclass(frozen=True)
class Guess:
    """An input path and an output path with the same values. share: that of outputs whose identity
    an input has; distinct: share of inputs with a unique identity; present: share of the records
    that have the paths."""

    input_path: str
    output_path: str
    share: float
    distinct: float
    present: float

    @property
    def score(self) -> tuple[float, float, float, int]:
        """Higher is better; ties go to the simpler path."""
        length = len(self.input_path) + len(self.output_path)
        return (round(self.share * self.distinct, 2), self.share, round(self.present, 1), -length)


def guesses(inputs: Seen, outputs: Seen) -> list[Guess]:
    """Pairs of paths with common values, best first."""
    sides = inputs.texts, outputs.texts
    result = []
    for input_path, texts in sides[0].items():
        names = Counter(text for text in texts if text is not None)
        distinct = sum(count == 1 for count in names.values()) / max(1, names.total())
        if outputs.windows:  # of many inputs each
            distinct = 1.0
        for output_path, theirs in sides[1].items():
            known = [text for text in theirs if text is not None]
            share = sum(text in names for text in known) / max(1, len(known))
            if share > 0.5 and distinct > 0.1:
                present = names.total() / len(texts) * len(known) / len(theirs)
                result.append(Guess(input_path, output_path, share, distinct, present))
    return sorted(result, key=lambda each: each.score, reverse=True)


def along(guessed: Sequence[list[Guess]]) -> list[Guess]:
    """One guess for each topic after the input, all of them of the same path of the input; empty if
    no path has its values in all topics. guessed: the guesses for each topic, best first."""
    by_path: dict[str, list[Guess]] = {}
    for number, of_topic in enumerate(guessed):
        for guess in of_topic:
            same = by_path.setdefault(guess.input_path, [])
            if len(same) == number:
                same.append(guess)
    whole = (same for same in by_path.values() if len(same) == len(guessed))
    return max(whole, key=lambda same: min(guess.score for guess in same), default=[])


def seen(
    topic: str, messages: list[Message], ids: SchemaIds | None, may_have_windows: bool = False
) -> Seen:
    """Guess the format of records. may_have_windows: whether keys may end with a window."""
    whole = [message for message in messages if message.value() is not None] or messages
    kind, separator = _format([message.value() or b"" for message in whole])
    values = _decoded(kind, [message.value() or b"" for message in whole], ids, separator)
    rows = [row for row, value in enumerate(values) if not _is_deleted(value)] or [
        *range(len(whole))
    ]
    kept = [whole[row] for row in rows]
    keys = [message.key() for message in kept]
    key_window, windows = _windows_of(keys) if may_have_windows else ("", [])
    if key_window:
        keys = [key and key[: -KEY_WINDOWS[key_window].size] for key in keys]
    key = _key_format([each for each in keys if each], ids)
    return Seen(
        topic,
        kept,
        [headers_of(message) for message in kept],
        kind,
        separator,
        key,
        [values[row] for row in rows],
        _decoded_keys(key, keys, ids),
        _types(kind, [message.value() or b"" for message in kept], ids),
        key_window,
        windows,
        len(messages) - len(kept),
    )


def _is_deleted(value: Any) -> bool:
    return any(is_delete(value, path) for path in ENVELOPES)


def _windows_of(keys: list[bytes | None]) -> tuple[str, list[tuple[int, ...]]]:
    """The kind of windows of Kafka Streams that all keys end with, empty if there are none, and
    their times."""
    for kind, tail in sorted(KEY_WINDOWS.items(), key=lambda each: -each[1].size):
        windows = [tail.unpack(key[-tail.size :]) for key in keys if key and len(key) > tail.size]
        if kind == "store":
            windows = [(start,) for start, number in windows if number >= 0]
        moments = {each for window in windows for each in window}
        if windows and len(windows) == len(keys) and all(each in WINDOWS_MS for each in moments):
            return kind, windows
    return "", []


def _decoded(
    kind: Format | KeyFormat, values: list[bytes], ids: SchemaIds | None, separator: str = ""
) -> list[Any]:
    decode = _decoder(kind, ids, separator)
    decoded = []
    for value in values:
        try:
            decoded.append(decode(value))
        except UndecodableError:
            decoded.append(None)
    return decoded


def _decoder(kind: Format | KeyFormat, ids: SchemaIds | None, separator: str) -> Decode:
    """The decoder of a format, which has None for what only a file can tell."""
    framing = framing_of(kind)
    if kind == "json":
        return decode_json
    if kind == "csv":
        return lambda value: {
            str(number): field for number, field in enumerate(decode_csv(value, separator))
        }
    if kind in JSON and framing is not None:
        return framed_json(framing)
    if framing is not None and ids is not None and kind != "protobuf-confluent":
        return framed_avro(ids, framing)
    return lambda _value: None


def _decoded_keys(kind: KeyFormat, keys: list[bytes | None], ids: SchemaIds | None) -> list[Any]:
    if kind == "text":
        return [*keys]
    if kind in NUMBERS:
        number = NUMBERS[kind]
        return [number.unpack(key)[0] if key else None for key in keys]
    return _decoded(kind, [key or b"" for key in keys], ids)


def _types(kind: Format, values: list[bytes], ids: SchemaIds | None) -> list[str]:
    """The type of each value by the id of its schema, which was fetched before; empty if it has no
    type of its own."""
    framing = framing_of(kind)
    if framing is None or kind in JSON or ids is None:
        return [""] * len(values)
    names: dict[bytes, str] = {}
    result = []
    for value in values:
        try:
            frame = framing.split(value)[0]
        except UndecodableError:
            frame = b""
        if frame not in names:
            names[frame] = _type(ids, framing.id_of(frame)) if frame else ""
        result.append(names[frame])
    return result


def _type(ids: SchemaIds, number: SchemaId) -> str:
    """The type with an id; empty if it is a union or unknown."""
    try:
        schema = parsed(ids.schema(number))
    except ValueError:
        return ""
    return "" if isinstance(schema, list) else type_name(schema)


def _format(values: list[bytes]) -> tuple[Format, str]:
    """The format of most values, and the separator if it is csv."""
    for kind, is_one in CHECKS:
        if values and sum(map(is_one, values)) >= GOOD * len(values):
            return kind, ""
    for separator in SEPARATORS:
        counts = Counter(_columns(value, separator) for value in values)
        for count, often in counts.most_common(1):
            if count > 1 and often >= GOOD * len(values):
                return "csv", separator
    return "bytes", ""


def _columns(value: bytes, separator: str) -> int:
    """How many fields a line has; 0 if it is none, or not of text."""
    try:
        fields = decode_csv(value, separator)
    except UndecodableError:
        return 0
    return len(fields) if all(map(str.isprintable, fields)) else 0


def _unframed(value: bytes, name: str) -> bytes:
    """A value without its header; empty if it has none."""
    try:
        _, data, start = FRAMINGS[name].split(value)
    except UndecodableError:
        return b""
    return data[start:]


def _is_json(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _framed_json(name: str) -> Callable[[bytes], bool]:
    return lambda value: _is_json(_unframed(value, name))


CHECKS: Final[tuple[tuple[Format, Callable[[bytes], bool]], ...]] = (
    ("json", _is_json),
    ("json-confluent", _framed_json("confluent")),
    ("json-apicurio", _framed_json("apicurio")),
    ("json-glue", _framed_json("glue")),
    ("avro-single-object", lambda value: value[:2] == MARKER),
    ("avro-glue", lambda value: bool(_unframed(value, "glue"))),
    # The ids of Confluent's header are not 0.
    ("avro-apicurio", lambda value: value[:5] == bytes(5) and bool(_unframed(value, "apicurio"))),
    ("avro-confluent", lambda value: value[:2] == b"\0\0" and bool(_unframed(value, "confluent"))),
)


def _key_format(keys: list[bytes], ids: SchemaIds | None) -> KeyFormat:
    """The format of keys, of which numbers of 8 bytes may look like a schema id and a value."""
    if (result := _format(keys)[0]) in JSON:
        return result
    if keys and all(key[:1] == key[-1:] == b'"' for key in keys):
        return "json"
    framed = bool(keys) and ids is not None and all(key[:1] == b"\0" for key in keys)
    if framed and None not in _decoded("avro-confluent", keys, ids):
        return "avro-confluent"
    if any(not key.isascii() or b"\0" in key for key in keys):
        for kind in ("int", "long"):
            if all(len(key) == NUMBERS[kind].size for key in keys):
                return kind
    return "text"


def _leaves(headers: Headers, key: Any) -> Iterator[tuple[str, bytes]]:
    """The key, if it is a plain value, and the headers of a record."""
    if (text := text_of(key)) is not None:
        yield "key", text
    for name, content in headers or ():
        if content is not None and _can_be_path(name):
            yield f"header.{name}", content


def _fields(value: Any, path: str, depth: int) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, str) and value[:1] == "{":
        value = within(value) or value
    if isinstance(value, dict) and depth < MOST_DEPTH:
        for name, inner in value.items():
            if _can_be_path(name) and (written := written_name(name)):
                yield from _fields(inner, f"{path}.{written}", depth + 1)
    elif depth and not isinstance(value, bool) and (text := text_of(value)):
        yield path, text


def _can_be_path(name: str) -> bool:
    """Whether the name of a foreign field or header can be part of a path, in one line."""
    return 0 < len(name) <= MOST_CHARACTERS and name.isprintable()


def newest(
    consumer: Consumer,
    topic: str,
    count: int,
    until_ms: int | None = None,
    max_bytes: int = MOST_BYTES,
) -> list[Message]:
    """About the newest `count` records of a topic, up to a time if given; none is read after
    `max_bytes` of values. Raises KafkaException,
    NoTopicError."""
    partitions = partition_ids(consumer, topic)
    later = {}
    if until_ms is not None:
        asked = [TopicPartition(topic, number, until_ms + 1) for number in partitions]
        later = {
            offsets_for_time.partition: offsets_for_time.offset
            for offsets_for_time in consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S)
            if offsets_for_time.offset >= 0
        }
    each, ends = max(1, count // len(partitions)), {}
    begins = []
    for number in partitions:
        place = TopicPartition(topic, number)
        low, high = consumer.get_watermark_offsets(place, KAFKA_TIMEOUT_S)
        high = later.get(number, high)
        place.offset = max(low, high - each)
        if place.offset < high:
            begins.append(place)
            ends[number] = high
    consumer.assign(begins)
    result: list[Message] = []
    deadline_s = time.monotonic() + READ_S
    read_bytes = 0
    while ends and time.monotonic() < deadline_s and read_bytes < max_bytes:
        for message in consumer.consume(500, 0.2):
            if message.error() is None and message.partition() in ends:
                result.append(message)
                read_bytes += len(message)
            if message.error() is not None or message.offset() + 1 >= ends.get(
                message.partition(), 0
            ):
                ends.pop(message.partition(), None)
    return result


def written(
    kafka: WatchedKafka, registry: Registry | None, inputs: Seen, *others: Seen
) -> Iterable[str]:
    """The lines of a watch file. others: the topics after the input, in order."""
    guessed = [guesses(inputs, other) for other in others]
    path = along(guessed)
    best, outputs = path[-1] if path else None, others[-1]
    name = "".join(c if c.isalnum() else "-" for c in inputs.topic.lower()).strip("-")[:40]
    yield f"# A guess from {len(inputs.messages)} records of {inputs.topic} and"
    counts = [f"{len(other.messages)} of {other.topic}" for other in others]
    yield f"# {', '.join(counts)}. Check every line."
    yield f'name = "{name or "watch"}"'
    yield ""
    yield "[kafka]"
    yield f'bootstrap = "{kafka.bootstrap}"'
    if kafka.properties:
        yield "# and the properties of the file with the logins"
    if registry is not None:
        yield ""
        yield "[registry]"
        yield f'url = "{registry.url}"'
    paths = [guess.output_path for guess in path] or ["key"] * len(others)
    sides = ["inputs", *["through"] * (len(others) - 1), "outputs"]
    paths = [best.input_path if best else "key", *paths]
    for side, of, identity in zip(sides, (inputs, *others), paths, strict=True):
        yield from _side(side, of, identity)
        if outputs.windows:
            yield from _windows(of) if of is outputs else ['time = "timestamp"']
    if len(others) > 1:
        yield from _hops([of.topic for of in (inputs, *others)])
    yield ""
    if best is None:
        where = "a path of the output" if len(others) == 1 else "paths of all other topics"
        yield f"# No path of the input has the values of {where}: set the identity."
        return
    for guess, other in zip(path[:-1], others, strict=False):
        yield f"# {guess.share:.0%} of the records of {other.topic} have the identity of an input."
    yield f"# {best.share:.0%} of the outputs have the identity of an input."
    if not outputs.windows:
        yield f"# {best.distinct:.0%} of the inputs have a unique identity."
    if best.distinct < GOOD:
        yield "# Repeated identities are paired in order; unique ones are better."
    for guess in [guess for guess in guessed[-1] if guess != best][:3]:
        yield f"# Also: {guess.input_path} = {guess.output_path}, found {guess.share:.0%}."
    yield from _relation(inputs, outputs, best)


def _side(side: str, of: Seen, path: str) -> Iterator[str]:
    yield ""
    yield f"[[{side}]]"
    yield f'topic = "{of.topic}"'
    yield f'format = "{of.format}"'
    if of.separator not in ("", COMMA):
        yield f"separator = {json.dumps(of.separator)}"
    if of.key != "text":
        yield f'key = "{of.key}"'
    if of.format == "avro-single-object":
        yield "schemas = []  # .avsc files in the folder of this file"
    if of.format == "avro-glue":
        yield "schema_ids = {}  # an .avsc file in the folder of this file for each GUID"
    elif of.format in AVRO and framing_of(of.format) and all(each is None for each in of.values):
        yield "# No schema was found for these values: use --registry. They may be Protobuf."
    yield f"identity = {json.dumps([path], ensure_ascii=False)}"
    if choice := of.choice(path):
        yield choice
    if of.skipped:
        yield f"# {of.skipped} records without a value, or of deleted rows, are not judged."


def _hops(topics: Sequence[str]) -> Iterator[str]:
    """A hop from each topic to the next, with the name of the topic that it writes."""
    names: list[str] = []
    for begin, end in pairwise(topics):
        name = re.sub("[^a-z0-9]+", "_", end.lower()).strip("_")[:MOST_OF_NAME]
        if not name[:1].isalpha() or name in (*names, WHOLE):
            name = f"hop_{len(names) + 1}"
        names.append(name)
        yield ""
        yield "[[hops]]"
        yield f'name = "{name}"'
        yield f'inputs = ["{begin}"]'
        yield f'outputs = ["{end}"]'


def _windows(of: Seen) -> Iterator[str]:
    """The settings of keys that end with a window."""
    yield f'key_window = "{of.key_window}"'
    if of.key_window == "session":
        return
    starts = sorted({start for (start,) in of.windows})
    yield "# The length of the windows. If they overlap, set it, and windows in relation."
    yield f"window_ms = {min((b - a for a, b in pairwise(starts)), default=UNKNOWN_MS)}"


def _relation(inputs: Seen, outputs: Seen, best: Guess) -> Iterator[str]:
    """The share of inputs between the first and the last output that have an output."""
    yield ""
    yield "[relation]"
    if outputs.windows:
        yield 'kind = "window"'
        return
    times = [message.timestamp()[1] for message in outputs.messages]
    known = set(outputs.texts[best.output_path])
    between = [
        text in known
        for text, message in zip(inputs.texts[best.input_path], inputs.messages, strict=True)
        if text is not None and min(times) <= message.timestamp()[1] <= max(times)
    ]
    share = sum(between) / len(between) if between else 1.0
    yield f"# {share:.0%} of the inputs from the time of these outputs have an output."
    yield f'kind = "{"one_to_one" if share > GOOD else "filter"}"'


Read = Callable[[str, int, int | None], list[Message]]
"""About the newest records of a topic, so many, up to a time (epoch ms) if given."""


def path_seen(read: Read, topics: Sequence[str], ids: SchemaIds | None) -> tuple[Seen, ...]:
    """Records of the topics of a path with identities in common, if there are any. Raises as
    `read`, and RegistrySilentError."""
    newest_outputs = read(topics[-1], OUTPUTS_READ, None)
    last_ms = max((message.timestamp()[1] for message in newest_outputs), default=-1)
    until_ms = last_ms if last_ms >= 0 else None
    tries = [(INPUTS_READ, until_ms), (MORE_INPUTS_READ, until_ms)]
    if until_ms is not None:  # it may be of an event long ago, before all inputs of the topic
        tries.append((INPUTS_READ, None))
    for count, until in tries:
        batches = [read(topic, count, until) for topic in topics[:-1]]
        # Only an output of windows has them in its keys; a path of topics has none.
        is_plain = len(batches) == 1 and not _windows_of([each.key() for each in batches[0]])[0]
        outputs = seen(topics[-1], newest_outputs, ids, may_have_windows=is_plain)
        inputs, *others = (
            seen(topic, messages, ids) for topic, messages in zip(topics[:-1], batches, strict=True)
        )
        if along([guesses(inputs, other) for other in (*others, outputs)]):
            break
    return inputs, *others, outputs


def main(cluster: Cluster, *topics: str) -> int:
    """Print the guess, or one sentence if the topics cannot be read; returns the exit code."""
    kafka, registry = cluster.kafka, cluster.registry
    settings = load_settings(ServiceSettings)
    try:
        ids = SchemaIds({}, asking(registry)) if registry else None
        client = client_properties(kafka, "infer", settings) | READING | SILENT
        with closing(Consumer(client)) as consumer:
            sides = path_seen(partial(newest, consumer), topics, ids)
    except KafkaException as error:
        return _refused(f"Kafka at {kafka.bootstrap} cannot be read: {error.args[0].str()}.")
    except (KafkaUnavailableError, RegistrySilentError, SecretFileError) as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"{error}.")
    for side in sides:
        if not side.messages:
            return _refused(f"there are no records in {side.topic}.")
    print("\n".join(written(kafka, registry, *sides)))
    return 0


def _refused(sentence: str) -> int:
    print(f"tidegauge: {sentence}", file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(Cluster.model_validate_json(sys.stdin.read()), *sys.argv[1:]))
