"""The SQL of a plan: a table per input and output, a view per stage and input, and an INSERT per
output. Pure."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from queries import changed, closed, counted, filtered, joined, looked_up, window_joined
from sql import APPENDED, TIME, CannotError, Rows, Spec, View, name, text, with_columns

SQL_TYPES = {"string": "STRING", "int": "INT", "long": "BIGINT", "float": "FLOAT",
             "double": "DOUBLE", "boolean": "BOOLEAN"}  # fmt: skip
# A transaction must outlast a checkpoint interval, and a restart. By default brokers allow 15
# minutes.
TRANSACTION_INTERVALS, MIN_TRANSACTION_MS, MAX_TRANSACTION_MS = 10, 60_000, 900_000
FUNCTIONS = {
    "entry_text": "tidegauge.flink.Entries$Text",
    "entry_number": "tidegauge.flink.Entries$Number",
}


def sql_type(kind: Any) -> tuple[str, bool]:
    """The SQL type of a field's Avro type, and whether it is nullable."""
    if isinstance(kind, list):
        return sql_type(next(each for each in kind if each != "null"))[0], True
    return SQL_TYPES[kind["type"] if isinstance(kind, dict) else kind], False


class Statements:
    """The statements of a plan. kafka_properties: of Java's clients.

    created: CREATE statements, in order. inserts: the INSERT that publishes a stage, by stage.
    tables: the source tables of a stage, by stage. longest_window_s: of the stages; 0 without
    windows.
    """

    def __init__(self, plan: Spec, plan_file: str, kafka_properties: dict[str, str]) -> None:
        self.created = [
            f"CREATE TEMPORARY FUNCTION {function} AS {text(java)}"
            for function, java in FUNCTIONS.items()
        ]
        self.inserts: dict[str, str] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self._plan, self._plan_file, self._settings = plan, plan_file, plan["pipeline"]
        domain = plan["domain"]
        self._schemas = domain["schemas"]
        self._fields = {
            record: {each["name"]: sql_type(each["type"]) for each in json.loads(schema)["fields"]}
            for record, schema in self._schemas.items()
        }
        self._inputs = {one["name"]: one for one in domain["inputs"]}
        self._specs = {one["name"]: one for one in domain["stages"]}
        self._kafka = {
            "connector": "kafka",
            "properties.bootstrap.servers": plan["bootstrap"],
            **{f"properties.{key}": value for key, value in kafka_properties.items()},
        }
        needed = {each for stage in plan["outputs"] for each in self._chain(stage)}
        self.has_watermark = any(_is_closed(self._specs[each]) for each in needed)
        windows = [self._specs[each]["window"] for each in needed]
        self.longest_window_s = max((one["size_s"] for one in windows if one), default=0)
        self._rows: dict[str, Rows] = {}
        self._read: dict[str, set[str]] = {}  # by stage, the inputs whose records it uses
        for stage in plan["outputs"]:
            self._publish(self._specs[stage])

    def _chain(self, stage: str) -> list[str]:
        if stage not in self._specs:
            return []
        return [stage, *(each for one in self._specs[stage]["reads"] for each in self._chain(one))]

    def inputs_of(self, spec: Spec) -> list[str]:
        """The inputs of a stage: those named by its columns, if any."""
        found: set[str] = set()
        for each in spec["reads"]:
            before = self._specs.get(each)
            found |= set(self.inputs_of(before)) if before else {each}
        named = {source.partition(".")[0] for source in _sources(spec) if "." in source}
        return [each for each in self._inputs if each in (found & named or found)]

    # Tables

    def _create(self, table: str, columns: Iterable[str], options: dict[str, str]) -> None:
        given = ", ".join(f"{text(key)} = {text(value)}" for key, value in options.items())
        self.created.append(
            f"CREATE TEMPORARY TABLE {name(table)} ({', '.join(columns)}) WITH ({given})"
        )

    def _source_options(self, source: Spec) -> dict[str, str]:
        offsets = enumerate(self._plan["start_offsets"][source["topic"]])
        return self._kafka | {
            "topic": source["topic"],
            "properties.group.id": f"{self._plan['group']}-{source['name']}",
            "properties.commit.offsets.on.checkpoint": "false",
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific-offsets": ";".join(
                f"partition:{number},offset:{at}" for number, at in offsets
            ),
            "properties.register.consumer.metrics": "false",
            "scan.topic-partition-discovery.interval": "0 ms",
        }

    def _sink_options(self, stage: str) -> dict[str, str]:
        guarantee = self._settings["guarantee"]
        found = self._kafka | {
            "topic": self._plan["outputs"][stage],
            "sink.delivery-guarantee": guarantee,
            "properties.linger.ms": str(self._settings["linger_ms"]),
            "properties.batch.size": str(1024 * self._settings["batch_kb"]),
            "properties.compression.type": self._settings["compression"],
            "properties.acks": "1" if guarantee == "none" else "all",
            "properties.enable.idempotence": str(guarantee != "none").lower(),
            "properties.register.producer.metrics": "false",
            "key.format": "raw",
            "value.fields-include": "EXCEPT_KEY",
        }
        if guarantee == "exactly-once":
            found["sink.transactional-id-prefix"] = f"{self._plan['group']}-{stage}"
            found["properties.transaction.timeout.ms"] = str(self._transaction_timeout_ms())
        return found

    def _transaction_timeout_ms(self) -> int:
        """The time after which the broker aborts a transaction that nobody ends."""
        wanted_ms = TRANSACTION_INTERVALS * self._settings["checkpoint_interval_ms"]
        return min(MAX_TRANSACTION_MS, max(MIN_TRANSACTION_MS, wanted_ms))

    def _input(self, source: str) -> Rows:
        """The decodable records of an input."""
        spec = self._inputs[source]
        fields, event_time = self._fields[spec["record"]], spec["event_time"]
        columns = [
            f"{name(each)} {kind}{'' if may_be_null else ' NOT NULL'}"
            for each, (kind, may_be_null) in fields.items()
        ]
        columns.append(f"`{APPENDED}` TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'timestamp' VIRTUAL")
        if self.has_watermark:
            columns.append(f"`{TIME}` AS TO_TIMESTAMP_LTZ({name(event_time)}, 3)")
            # Subtract 1 ms: a record at the watermark itself would be late.
            columns.append(f"WATERMARK FOR `{TIME}` AS `{TIME}` - INTERVAL '0.001' SECOND")
        options = self._source_options(spec) | {
            "format": "record",
            "record.schema": self._schemas[spec["record"]],
            "record.wire-format": self._plan["wire_format"],
        }
        self._create(f"input_{source}", columns, options)
        types = {each: kind for each, (kind, _) in fields.items()}
        hidden = (APPENDED, *([TIME] if self.has_watermark else []))
        return {source: View("", types, event_time, hidden, f"input_{source}")}

    def _publish(self, spec: Spec) -> None:
        stage = spec["name"]
        if spec["kind"] == "copy":
            self.tables[stage] = tuple(f"raw_{each}" for each in self.inputs_of(spec))
            selects = self._copies(spec)
        else:
            selects = self._outputs(spec)
            read = self._read[stage]
            self.tables[stage] = tuple(f"input_{each}" for each in self._inputs if each in read)
        self.inserts[stage] = f"INSERT INTO {name(f'output_{stage}')} " + " UNION ALL ".join(
            selects
        )

    def _copies(self, spec: Spec) -> list[str]:
        """Unchanged keys and values, including undecodable ones."""
        raw = {"key.format": "raw", "key.fields": "key", "value.format": "raw"}
        raw["value.fields-include"] = "EXCEPT_KEY"
        columns = ("`key` BYTES", "`value` BYTES")
        for table, source in zip(self.tables[spec["name"]], self.inputs_of(spec), strict=True):
            if table not in self._rows:
                self._create(table, columns, self._source_options(self._inputs[source]) | raw)
                self._rows[table] = {}
        self._create(f"output_{spec['name']}", columns, self._sink_options(spec["name"]) | raw)
        return [
            f"SELECT `key`, `value` FROM {name(table)} WHERE `value` IS NOT NULL"
            for table in self.tables[spec["name"]]
        ]

    def _outputs(self, spec: Spec) -> list[str]:
        stage, fields = spec["name"], self._fields[spec["record"]]
        columns = ["`_key` STRING NOT NULL"]
        columns += [f"{name(each)} {kind}" for each, (kind, _) in fields.items()]
        options = self._sink_options(stage) | {
            "value.format": "record",
            "value.record.schema": self._schemas[spec["record"]],
        }
        if any(self._specs[each]["complete"] for each in self._chain(stage)):
            # The query produces updates, but incomplete results are filtered out before the sink.
            options["connector"] = "upsert-kafka"
            columns.append("PRIMARY KEY (`_key`) NOT ENFORCED")
        else:
            options["key.fields"] = "_key"
        rows = self.rows(stage)
        self._create(f"output_{stage}", columns, options)

        def value(view: View, column: str) -> str:
            return name(column) if column in view.columns else "NULL"

        return [
            f"SELECT CAST({name(spec['key'])} AS STRING), "
            + ", ".join(f"CAST({value(view, e)} AS {kind})" for e, (kind, _) in fields.items())
            + f" FROM {name(view.name)}"
            for view in rows.values()
        ]

    # Stages

    def rows(self, each: str) -> Rows:
        """The rows of an input or a stage."""
        if each not in self._rows:
            self._rows[each] = (
                self._input(each) if each in self._inputs else self._stage(self._specs[each])
            )
        return self._rows[each]

    def _stage(self, spec: Spec) -> Rows:
        inputs = self.inputs_of(spec)
        read = {
            source: view
            for each in spec["reads"]
            for source, view in self.rows(each).items()
            if not source or source in inputs
        }
        read = with_columns(spec, read, spec["keys"])
        made = self._made(spec, read, inputs)
        used = read if "" in made else made
        self._read[spec["name"]] = self._read[spec["reads"][0]] if "" in used else set(used)
        return {source: self._named(spec, source, view) for source, view in made.items()}

    def _made(self, spec: Spec, read: Rows, inputs: list[str]) -> Rows:
        needed = sorted({of.partition(".")[0] for of in _sources(spec) if "." in of})
        kinds: dict[str, Callable[[], Rows]] = {
            "filter": lambda: filtered(spec, read),
            "lookup": lambda: looked_up(spec, read, self._plan_file),
            "join": lambda: joined(spec, _of_each(spec, read, inputs)),
            "window_join": lambda: window_joined(spec, _of_each(spec, read, inputs)),
            "aggregate": lambda: (
                counted(spec, read, inputs) if spec["complete"] else closed(spec, read, needed)
            ),
            "change": lambda: changed(spec, read),
        }
        return kinds[spec["kind"]]() if spec["kind"] in kinds else read

    def _named(self, spec: Spec, source: str, view: View) -> View:
        """The view of a stage, created if the stage reads another."""
        if spec["kind"] in ("copy", "decode"):
            return view
        named = replace(view, name=f"stage_{spec['name']}" + (f"_{source}" if source else ""))
        self.created.append(f"CREATE TEMPORARY VIEW {name(named.name)} AS {named.query}")
        return named


def _of_each(spec: Spec, read: Rows, inputs: list[str]) -> Rows:
    """The views of the inputs of a join, in order. Raises CannotError if one is missing."""
    for each in inputs:
        if each not in read:
            raise CannotError(f"{spec['name']} reads no records of {each}")
    return {each: read[each] for each in inputs}


def _is_closed(spec: Spec) -> bool:
    """Whether the stage waits for the watermark."""
    return spec["kind"] == "window_join" or (
        spec["kind"] in ("aggregate", "change") and not spec["complete"]
    )


def _sources(spec: Spec) -> list[str]:
    """The `INPUT.COLUMN` references of a stage."""
    return [*spec["columns"].values(), *(of for one in spec["aggregates"] for of in one["of"])]
