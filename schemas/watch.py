"""A watch: topics of an external pipeline to read, and how their records belong together.

    name = "orders"

    [kafka]
    bootstrap = "kafka:9092"

    [[inputs]]
    topic = "orders"
    format = "json"
    identity = ["value.order_id"]

    [[outputs]]
    topic = "orders-enriched"
    format = "avro-confluent"
    identity = ["value.order.id"]

    [registry]
    url = "https://registry:8081"

An input and its output have the same identity. Latency is the timestamp of the output minus that
of its (latest) input; the topics use LogAppendTime or CreateTime.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from schemas.model import Model, Stage, looks_secret
from schemas.threshold import Threshold, parse_watch_threshold

_Encoded = Literal[
    "text",
    "csv",
    "json",
    "json-confluent",
    "json-apicurio",
    "json-glue",
    "avro",
    "avro-single-object",
    "avro-confluent",
    "avro-apicurio",
    "avro-glue",
    "protobuf",
    "protobuf-confluent",
]
Format = Literal["bytes", _Encoded]
AVRO: Final = ("avro", "avro-single-object", "avro-confluent", "avro-apicurio", "avro-glue")
JSON: Final = ("json", "json-confluent", "json-apicurio", "json-glue")
PROTOBUF: Final = ("protobuf", "protobuf-confluent")
KeyFormat = Literal[_Encoded, "short", "int", "long", "float", "double"]
WITH_FIELDS: Final = (*JSON, *AVRO, *PROTOBUF, "csv")  # of the formats of keys
TimeFormat = Literal["s", "ms", "us", "ns", "iso"]
TIMESTAMP: Final = "timestamp"
_NAME: Final = r'(?:"[^"]{1,200}"|[^."][^.]{0,199})'
_PATH = re.compile(
    rf"^(timestamp|key(\.{_NAME}){{0,10}}|header\..{{1,200}}|value(\.{_NAME}){{0,10}})$"
)
_NAMES: Final = re.compile(rf"(?:^|(?<=\.)){_NAME}").findall
# All names that Kafka allows, which have no colon, after the name of another cluster.
MOST_HOPS: Final = 16  # and as many topics between them
Topic = Annotated[
    str, Field(pattern=r"^([a-z][a-z0-9-]{0,39}:)?[A-Za-z0-9._-][A-Za-z0-9._-]{0,248}$")
]
ClusterName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
WatchName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
SchemaIdText = Annotated[
    str, Field(pattern=r"^([0-9]{1,19}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
]
SEPARATOR: Final = r"^([\t !#-~])?$"
MAX_RELATED = 64
MOST_WINDOW_MS: Final = 366 * 86_400_000
DAY_S: Final = 86_400
MOST_RUN_S: Final = 10_000_000_000  # of one run with everything that topics have


def _checked_path(path: str) -> str:
    if not _PATH.match(path):
        raise ValueError(
            "must be key, key.FIELD, header.NAME, value, value.FIELD[.FIELD] or timestamp"
        )
    return path


def names_of(path: str) -> tuple[str, ...]:
    """The parts of a path; the name of a header may contain dots, as that of a field in quotation
    marks.

    >>> names_of('value.labels."service.name"')
    ('value', 'labels', 'service.name')
    """
    where, _, rest = path.partition(".")
    if where == "header":
        return where, rest
    return where, *(name.strip('"') if name[0] == '"' else name for name in _NAMES(rest))


def written_name(name: str) -> str:
    """The name of a field as it is written in a path; empty if it cannot be."""
    if "." not in name and name[:1] != '"':
        return name
    return "" if '"' in name else f'"{name}"'


WatchPath = Annotated[str, AfterValidator(_checked_path)]


class WatchedKafka(Model):
    """The watched cluster. bootstrap: `host:port[,host:port]`; empty: Tidegauge's own cluster.
    properties: security properties of librdkafka."""

    bootstrap: str = Field("", max_length=2_000)
    properties: dict[str, str] = Field(default_factory=dict, max_length=50)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError("must be https://host[:port], with a login in user and password")
    return url


class Registry(Model):
    """A schema registry with Confluent's HTTP interface, or for its formats with Apicurio's own.
    user and password for basic authentication, or token as bearer. ca_path: PEM of the authorities,
    empty for the machine's."""

    url: Annotated[str, AfterValidator(_checked_url)] = Field(pattern=r"^https?://[^\s]+$")
    user: str = ""
    password: str = Field("", repr=False)
    token: str = Field("", repr=False)
    ca_path: str = ""


class Cluster(Model):
    """The tables of a watch file that name a cluster, with logins: what `watch --infer` needs."""

    kafka: WatchedKafka = WatchedKafka()
    registry: Registry | None = None

    @property
    def has_secrets(self) -> bool:
        """Whether it contains a password or a token."""
        login = self.registry is not None and (self.registry.password or self.registry.token)
        return bool(login) or any(
            looks_secret(name, value) for name, value in self.kafka.properties.items()
        )


def own_name(cluster: str, name: str) -> str:
    """The name of a topic or a group in a watch. cluster: its cluster, empty for the first."""
    return f"{cluster}:{name}" if cluster else name


class Encoding(NamedTuple):
    """How the values or the keys of a topic are encoded; the settings are those of WatchedTopic."""

    format: Format | KeyFormat
    schemas: tuple[str, ...]
    schema_ids: Mapping[str, str]
    message: str
    separator: str


Text = str | int | float
Wanted = bool | Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=100)]


class WatchedTopic(Model):
    """A topic and its records. Its name is `CLUSTER:TOPIC` if it is not in the first cluster.

    format: of the values. avro: one schema, without a header; avro-single-object: `C3 01` and the
    fingerprint of one of `schemas`; avro-confluent: 0 and the id of a schema in the registry or in
    `schema_ids`; avro-apicurio, avro-glue: the same with the headers of Apicurio before its release
    3 and of AWS Glue; protobuf: `message` of a descriptor set; protobuf-confluent: the same with
    Confluent's header, as the kinds of json; csv: a line of fields, by number, with `separator`
    between them, empty for a comma; text: values have no fields; bytes: only key and headers are
    read. schemas, schema_ids: files, `.avsc` or, for Protobuf, one descriptor set; an id is a
    number or a GUID. message: the only type of
    records that concerns the watch, by its full name. key: format of the key: text is its bytes,
    short to double are big-endian, the others have fields; key_schemas, key_message: for them.
    identity: paths whose values together identify a record. where: values that other paths must
    have, true for any, false for none; other records do not concern the watch. by: a path; latency
    is split by its values. time: event time of an input of windows; start, end: window of an
    output, the end exclusive; window_ms: length of windows, in place of one of both. key_window:
    the key ends with the window as Kafka Streams writes it: time: its start, session: its last
    millisecond and its start, store: its start and a number, as in the changelog of a window store.
    time_format: format of times: seconds, milliseconds, microseconds or nanoseconds since 1970, or
    ISO 8601, UTC by default; a type that has a unit of its own is read by that.
    """

    topic: Topic
    format: Format = "bytes"
    schemas: tuple[str, ...] = Field((), max_length=100)
    schema_ids: dict[SchemaIdText, str] = Field(default_factory=dict, max_length=1_000)
    message: str = ""
    separator: str = Field("", pattern=SEPARATOR)
    key: KeyFormat = "text"
    key_schemas: tuple[str, ...] = Field((), max_length=100)
    key_message: str = ""
    key_window: Literal["", "time", "session", "store"] = ""
    identity: tuple[WatchPath, ...] = Field(("key",), min_length=1, max_length=8)
    where: dict[WatchPath, Wanted] = Field(default_factory=dict, max_length=8)
    by: WatchPath | Literal[""] = ""
    time: WatchPath | Literal[""] = ""
    start: WatchPath | Literal[""] = ""
    end: WatchPath | Literal[""] = ""
    window_ms: int = Field(0, ge=0, le=MOST_WINDOW_MS)
    time_format: TimeFormat = "ms"

    @property
    def times(self) -> tuple[str, ...]:
        """Paths of the event time, or of the start and end of a window."""
        return tuple(path for path in (self.time, self.start, self.end) if path)

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that are looked up in a record."""
        return (*self.identity, *self.where, *((self.by,) if self.by else ()), *self.times)

    def paths_in(self, part: str) -> list[list[str]]:
        """The names of all paths into a part, key or value, for values with fields."""
        return [[*names_of(path)[1:]] for path in self.paths if path.startswith(f"{part}.")]

    @property
    def needs_values(self) -> bool:
        """Whether values are decoded: for a path, or to know the type of records."""
        has_types = bool(self.message) and self.format != "protobuf"
        return has_types or any(path[:5] == "value" for path in self.paths)

    @property
    def needs_keys(self) -> bool:
        """Whether keys are decoded."""
        return self.key in WITH_FIELDS and any(path[:3] == "key" for path in self.paths)

    @property
    def values(self) -> Encoding:
        """The encoding of the values."""
        return Encoding(self.format, self.schemas, self.schema_ids, self.message, self.separator)

    @property
    def keys(self) -> Encoding:
        """The encoding of the keys."""
        return Encoding(
            self.key, self.key_schemas, self.schema_ids, self.key_message, self.separator
        )

    @property
    def has_windows(self) -> bool:
        """Whether start and end of a window are known."""
        if self.key_window:
            return True
        return bool(self.start and self.end) or bool(self.window_ms and (self.start or self.end))

    @model_validator(mode="after")
    def _can_be_decoded(self) -> "WatchedTopic":
        if any(path.startswith("key.") for path in self.paths) and self.key not in WITH_FIELDS:
            raise ValueError(
                f"a path into the key needs one of these keys: {', '.join(WITH_FIELDS)}"
            )
        if self.separator and "csv" not in (self.format, self.key):
            raise ValueError("separator needs the format csv")
        if self.format == "bytes" and self.needs_values:
            raise ValueError("a path into the value needs a format other than bytes")
        if self.needs_values:
            _check_schemas(self.values, "the format", "schemas", "message")
        if self.needs_keys:
            _check_schemas(self.keys, "the key", "key_schemas", "key_message")
        return self

    @model_validator(mode="after")
    def _has_a_window(self) -> "WatchedTopic":
        if self.key_window and (self.start or self.end):
            raise ValueError("key_window replaces start and end")
        has_start = self.key_window in ("time", "store")
        if has_start and not self.window_ms:
            raise ValueError(
                f"key_window = {self.key_window!r} needs window_ms, the length of the windows"
            )
        if self.window_ms and (bool(self.start) + bool(self.end) + has_start) != 1:
            raise ValueError("window_ms needs one of start, end and key_window = 'time' or 'store'")
        return self


def _check_schemas(encoding: Encoding, what: str, schemas: str, message: str) -> None:
    kind, files = encoding.format, encoding.schemas
    if kind == "avro" and len(files) != 1:
        raise ValueError(f"{what} avro needs one file in {schemas}")
    if kind == "avro-glue" and not encoding.schema_ids:
        raise ValueError(f"{what} avro-glue needs files in schema_ids, by GUID")
    if kind == "avro-single-object" and not files:
        raise ValueError(f"{what} avro-single-object needs files in {schemas}")
    if kind in PROTOBUF and not (len(files) == 1 and encoding.message):
        raise ValueError(f"{what} {kind} needs one file in {schemas}, and {message}")
    if encoding.message and kind not in (*AVRO, *PROTOBUF):
        raise ValueError(f"{message} needs a format with types: {', '.join((*AVRO, *PROTOBUF))}")


class Relation(Model):
    """How many inputs an output has, and how long to wait for it.

    one_to_one: every input has one output. filter: at most one; its absence is not a loss. join: an
    output has `inputs` records of one identity, by default one of each topic. window: an output is
    an aggregate of the inputs of its identity whose event time is in its window; an input is in
    `windows` of them.
    deadline_ms: an output later than this after its latest input is late; an output before its
    input, by another clock, waits this long for it. give_up_ms: an output that has not arrived by
    then is missing. remember_ms: after that an output is no longer recognised as late or duplicate.
    """

    kind: Literal["one_to_one", "filter", "join", "window"] = "one_to_one"
    inputs: int = Field(0, ge=0, le=MAX_RELATED)
    windows: int = Field(1, ge=1, le=MAX_RELATED)
    deadline_ms: int = Field(10_000, ge=1, le=86_400_000)
    give_up_ms: int = Field(60_000, ge=1, le=86_400_000)
    remember_ms: int = Field(120_000, ge=1, le=172_800_000)

    @model_validator(mode="after")
    def _in_order(self) -> "Relation":
        if not self.deadline_ms <= self.give_up_ms <= self.remember_ms:
            raise ValueError("deadline_ms <= give_up_ms <= remember_ms is required")
        if self.inputs and self.kind != "join":
            raise ValueError("inputs requires kind = 'join'")
        if self.windows != 1 and self.kind != "window":
            raise ValueError("windows requires kind = 'window'")
        return self


class Hop(Model):
    """A part of a path: a stage of its own in all results. inputs, outputs: topics of the file."""

    name: Stage
    inputs: tuple[Topic, ...] = Field(min_length=1, max_length=8)
    outputs: tuple[Topic, ...] = Field(min_length=1, max_length=8)


class Watch(Model):
    """A watch file.

    stage: its name in tables and charts; the pipeline has the name of the watch. begin: at the end
    of the topics, or at their earliest record. run_s: duration of a run; an hour, except in trials;
    more than a day only from the earliest record on.
    share: of the identities counted, selected by hash; counts are exact for these. max_per_second:
    limit of records per second, inputs and outputs; above it a smaller share is counted until the
    rate falls; 0 for no limit.
    max_records: number of inputs remembered, and of outputs that wait for one; above it the share
    of identities is halved, until few are remembered for a while. groups: consumer groups whose lag
    is reported. thresholds: limits on the figures of every run, as in schemas/threshold.py.
    hops: parts of the path from inputs to outputs, each judged by the same relation; through: the
    topics between them. clusters: another cluster than that of `kafka`, by name; without a registry
    it has that of the first.
    """

    name: WatchName
    summary: str = ""
    kafka: WatchedKafka = WatchedKafka()
    registry: Registry | None = None
    clusters: dict[ClusterName, Cluster] = Field(default_factory=dict, max_length=1)
    inputs: tuple[WatchedTopic, ...] = Field(min_length=1, max_length=8)
    outputs: tuple[WatchedTopic, ...] = Field(min_length=1, max_length=8)
    through: tuple[WatchedTopic, ...] = Field((), max_length=MOST_HOPS)
    hops: tuple[Hop, ...] = Field((), max_length=MOST_HOPS)
    relation: Relation = Relation()
    stage: Stage = "output"
    begin: Literal["now", "earliest"] = "now"
    run_s: int = Field(3_600, ge=5, le=MOST_RUN_S)
    share: float = Field(1.0, gt=0, le=1)
    max_per_second: int = Field(0, ge=0)
    max_records: int = Field(4_000_000, ge=1_000, le=100_000_000)
    groups: tuple[str, ...] = Field((), max_length=50)
    thresholds: tuple[str, ...] = Field((), max_length=50)

    @property
    def limits(self) -> tuple[Threshold, ...]:
        """The parsed thresholds. Raises ValueError."""
        kind = self.relation.kind
        has_groups = bool(self.groups)
        return tuple(
            parse_watch_threshold(line, self.name, self.stages, kind, has_groups=has_groups)
            for line in self.thresholds
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Names of the stages: of the whole, then of the hops."""
        return (self.stage, *(hop.name for hop in self.hops))

    @property
    def is_one_run(self) -> bool:
        """Whether one run has all that the topics have."""
        return self.run_s > DAY_S

    @property
    def sides(self) -> tuple[WatchedTopic, ...]:
        """All topics: inputs, those between, outputs."""
        return (*self.inputs, *self.through, *self.outputs)

    def of_hop(self, hop: Hop) -> "Watch":
        """The same watch of one hop alone, whose latency is not split by a field."""
        sides = {side.topic: side.model_copy(update={"by": ""}) for side in self.sides}
        fields: dict[str, Any] = {"stage": hop.name, "hops": (), "through": ()}
        for side in ("inputs", "outputs"):
            fields[side] = tuple(sides[topic] for topic in getattr(hop, side))
        return self.model_copy(update=fields)

    @property
    def inputs_per_output(self) -> int:
        """Records of one identity per output."""
        if self.relation.kind != "join":
            return 1
        return self.relation.inputs or len(self.inputs)

    def topics(self) -> tuple[str, ...]:
        """All topics, inputs first."""
        return tuple(each.topic for each in self.sides)

    @property
    def cluster(self) -> Cluster:
        """How to connect."""
        return Cluster(kafka=self.kafka, registry=self.registry)

    def cluster_of(self, name: str) -> str:
        """The cluster of a topic or a group by its name in the watch; empty for the first."""
        cluster, colon, _ = name.partition(":")
        return cluster if colon and cluster in self.clusters else ""

    def registry_of(self, topic: str) -> Registry | None:
        """The schema registry of a topic."""
        cluster = self.clusters.get(self.cluster_of(topic))
        return (cluster and cluster.registry) or self.registry

    def public(self) -> dict[str, Any]:
        """All public fields as JSON types: without logins and schemas."""
        fields = self.model_dump(mode="json", exclude={"kafka": {"properties"}})
        if self.registry is not None:
            fields["registry"] = {"url": self.registry.url}
        fields["clusters"] = {
            name: {"kafka": {"bootstrap": each.kafka.bootstrap}}
            for name, each in self.clusters.items()
        }
        for side in (*fields["inputs"], *fields["through"], *fields["outputs"]):
            del side["schemas"], side["schema_ids"], side["key_schemas"]
        return fields

    @model_validator(mode="after")
    def _is_whole(self) -> "Watch":
        topics = self.topics()
        for topic in topics:
            if topics.count(topic) > 1:
                raise ValueError(f"the topic {topic} is named twice")
        self._check_clusters()
        for side in self.sides:
            of_values = side.format == "avro-confluent" and side.needs_values
            framed = of_values or (side.key == "avro-confluent" and side.needs_keys)
            if framed and not side.schema_ids and self.registry_of(side.topic) is None:
                raise ValueError(f"the schemas of {side.topic} need a registry or schema_ids")
        fields = {side.by for side in self.sides if side.by}
        if len(fields) > 1:
            raise ValueError(f"latency can be split by one field, not by {' and '.join(fields)}")
        if self.relation.kind == "join" and self.inputs_per_output < 2:
            raise ValueError("a join needs at least two inputs")
        if self.begin == "now" and self.is_one_run:
            raise ValueError(f"run_s must be at most {DAY_S}")
        self._check_times()
        self._check_hops()
        _ = self.limits  # raises for an invalid threshold
        return self

    def _check_clusters(self) -> None:
        for topic in self.topics():
            cluster = topic.rpartition(":")[0]
            if cluster and cluster not in self.clusters:
                raise ValueError(f"{topic} is in the cluster {cluster}, which is not in clusters")
        used = {self.cluster_of(topic) for topic in self.topics()}
        for name, other in self.clusters.items():
            if not other.kafka.bootstrap:
                raise ValueError(f"the cluster {name} needs kafka.bootstrap")
        if self.clusters and used != {"", *self.clusters}:
            raise ValueError("with clusters, each cluster needs a topic: CLUSTER:TOPIC")

    def _check_times(self) -> None:
        is_window = self.relation.kind == "window"
        for side in self.inputs:
            if bool(side.time) != is_window or side.start or side.end or side.has_windows:
                raise ValueError(f"{side.topic} needs time if and only if kind = 'window'")
        for side in self.outputs:
            if (
                side.has_windows != is_window
                or side.time
                or ((side.start or side.end) and not is_window)
            ):
                raise ValueError(
                    f"{side.topic} needs start and end, or key_window, if and only if "
                    "kind = 'window'"
                )

    def _check_hops(self) -> None:
        if self.hops and self.relation.kind not in ("one_to_one", "filter"):
            raise ValueError("hops need kind = 'one_to_one' or 'filter'")
        if len(set(self.stages)) < len(self.stages):
            raise ValueError(f"the stages {', '.join(self.stages)} need different names")
        starts, ends = ({side.topic for side in each} for each in (self.inputs, self.outputs))
        known = set(self.topics())
        read = {topic for hop in self.hops for topic in hop.inputs}
        written = {topic for hop in self.hops for topic in hop.outputs}
        for hop in self.hops:
            for topic in (*hop.inputs, *hop.outputs):
                if topic not in known:
                    raise ValueError(
                        f"the hop {hop.name} has the topic {topic}, which is not in inputs, "
                        "through or outputs"
                    )
            if repeated := {*hop.inputs} & ({*hop.outputs} | ends):
                raise ValueError(f"{min(repeated)} cannot be an input of the hop {hop.name}")
            if {*hop.outputs} & starts:
                raise ValueError(f"{min({*hop.outputs} & starts)} cannot be an output of a hop")
        for side in self.through:
            if side.topic not in read & written:
                raise ValueError(
                    f"{side.topic} in through needs a hop with it in outputs, and one with it in "
                    "inputs"
                )


class WatchedWorkload(Model):
    """Replaces the workload in a run of a watch: a name, and how outputs are judged."""

    name: str
    summary: str
    judgement: dict[str, int]


class WatchedPipeline(Model):
    """Replaces the pipeline under test in a run of a watch: its name."""

    name: str
    summary: str = ""
    stages: tuple[Stage, ...]


class WatchRun(Model):
    """Detail of `watch_begun`: one run of a watch, by default an hour. Fields shared with a load's
    request have the same names (schemas.protocol.RunRequest)."""

    run_id: str
    watch: dict[str, Any]
    start_ms: int
    end_ms: int
    workload: WatchedWorkload
    pipelines: tuple[WatchedPipeline, ...]
    stages: tuple[Stage, ...]
    environment: dict[str, Any] = Field(default_factory=dict)
