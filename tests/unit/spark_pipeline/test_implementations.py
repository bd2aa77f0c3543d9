"""All implementations publish the same outputs: a domain of two inputs with the same columns, so
that only the input itself distinguishes their records."""

import json

import pytest

from schemas.domain import DomainSpec
from services.spark_pipeline.outputs import StageSource, outputs
from services.spark_pipeline.settings import SparkPipeline
from tests.unit.spark_pipeline.observations import START_MS, at

pytestmark = pytest.mark.integration

RAW = "topic string, key binary, value binary, partition int, offset bigint, timestamp timestamp"
TIME = {"type": "long", "logicalType": "timestamp-millis"}
HEADER = {"sequence": "long", "run_id": "string", "scheduled_at": TIME}
CHANGE = ["null", "double"]
BOUNDS = {"run_id": "string", "id": "string", "window_start": TIME, "window_end": TIME}
RECORDS = {
    "reading": HEADER
    | {"id": "string", "part": "string", "parts": "int", "x": "double", "at": TIME},
    "decoded": {"run_id": "string", "id": "string", "part": "string", "x": "double", "no": CHANGE},
    "joined": {
        "run_id": "string", "id": "string", "part": "string", "at": TIME,
        "first": "double", "highest": "double", "both": "double",
    },
    "total": BOUNDS | {"parts": "int", "sum": "double", "mean": "double", "lowest": "double"},
    "changed": BOUNDS | {"by": CHANGE, "by_two": CHANGE},
    "seen": HEADER
    | {"id": "string", "part": "string", "parts": "int", "x": "double", "seen_at": TIME},
    "joins": BOUNDS | {"joins": "long"},
}  # fmt: skip
COUNTED = {"keys": ["id"], "key": "id", "complete": {"column": "parts"}, "once_per": ["part"]}


def made(column, function, *of):
    return {"column": column, "function": function, "of": of}


DOMAIN = DomainSpec.model_validate(
    {
        "name": "twins",
        "schemas": {
            name: json.dumps(
                {"type": "record", "name": name,
                 "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}
            )
            for name, fields in RECORDS.items()
        },
        "inputs": [
            {"name": name, "topic": name, "record": "reading", "key": "id", "event_time": "at"}
            for name in ("a", "b")
        ],
        "stages": [
            {"name": "parse", "kind": "decode", "reads": ["a", "b"], "record": "decoded",
             "key": "id"},
            {"name": "join", "kind": "join", "reads": ["parse"], "record": "joined", "key": "id",
             "keys": ["id", "part"],
             "aggregates": [made("first", "first", "a.x"), made("highest", "max", "a.x", "b.x"),
                            made("both", "sum", "a.x", "b.x")]},
            {"name": "high", "kind": "filter", "reads": ["join"], "record": "joined", "key": "id",
             "where": [{"column": "highest", "operator": ">", "value": 4}]},
            {"name": "total", "kind": "aggregate", "reads": ["parse"], "record": "total",
             "window": {"size_s": 1, "slide_s": 1},
             "aggregates": [made("parts", "count_distinct", "a.part"), made("sum", "sum", "a.x"),
                            made("mean", "mean", "b.x"), made("lowest", "min", "a.x", "b.x")]}
            | COUNTED,
            {"name": "change", "kind": "change", "reads": ["total"], "record": "changed",
             "window": {"size_s": 3, "slide_s": 1},
             "changes": [{"column": "by", "of": "sum", "back": 1},
                         {"column": "by_two", "of": "mean", "back": 2}]} | COUNTED,
            {"name": "joins", "kind": "aggregate", "reads": ["join"], "record": "joins",
             "key": "id", "keys": ["id"], "window": {"size_s": 1, "slide_s": 1},
             "aggregates": [made("joins", "count", "both")]},
        ],
    }
)  # fmt: skip
SEEN = {"name": "b", "topic": "b", "record": "seen", "key": "id", "event_time": "seen_at"}
TWO_TIMES = DomainSpec.model_validate(
    DOMAIN.model_dump() | {"inputs": [DOMAIN.inputs[0].model_dump(), SEEN]}
)
# Per second and part: x of both inputs.
READINGS = (
    {"p": (2.0, 8.0), "q": (3.0, 4.0)},
    {"p": (4.0, 1.0), "q": (6.0, 3.0)},
    {"p": (5.0, 3.0), "q": (0.0, 6.0)},
)
IMPLEMENTATIONS = {
    name: SparkPipeline.model_validate(
        {
            "name": "p",
            "summary": "-",
            "engine": "spark",
            "mode": "micro-batch",
            "implementation": name,
        }
        | ({"incomplete_windows": "publish"} if name == "built-in" else {})
    )
    for name in ("customised", "state", "built-in")
}


def encoded(domain, topic, second, part, x):
    one = domain.input(topic)
    fields = {"id": "i", "part": part, "parts": 2, "x": x, "sequence": 0, "run_id": "r"}
    times = {"scheduled_at": 0, one.event_time: START_MS + 1000 * second}
    return domain.codec.encode(one.record, fields | times)


def published(spark, stage, implementation, domain=DOMAIN):
    rows = [
        (topic, b"k", encoded(domain, topic, second, part, x), 0, 0, at(60))
        for second, parts in enumerate(READINGS)
        for part, both in parts.items()
        for topic, x in zip(("a", "b"), both, strict=True)
    ]
    # In a join it has no counterpart, and its window is incomplete.
    rows.append(("a", b"k", encoded(domain, "a", 9, "p", 7.0), 0, 0, at(60)))
    frame = spark.createDataFrame(rows, RAW)
    source = StageSource(lambda topics: frame.where(frame["topic"].isin(*topics)), "undecodable")
    found = outputs(source, domain, stage, IMPLEMENTATIONS[implementation]).collect()
    return [domain.codec.decode(bytes(row["value"]))[1] for row in found]


def of_windows(rows, *columns):
    """Columns by the start second of a window."""
    return {
        (row["window_start"] - START_MS) // 1000: tuple(row[name] for name in columns)
        for row in rows
    }


implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


@implementation
def test_a_join_takes_one_record_of_each_input(spark, implementation):
    rows = published(spark, "join", implementation)
    assert len(rows) == 6
    found = {(row["at"], row["part"]): row for row in rows}
    assert found[START_MS + 1000, "p"] == {
        "run_id": "r", "id": "i", "part": "p", "at": START_MS + 1000,
        "first": 4.0, "highest": 4.0, "both": 5.0,
    }  # fmt: skip


@implementation
def test_a_join_has_the_event_time_of_its_first_input(spark, implementation):
    rows = published(spark, "join", implementation, TWO_TIMES)
    same = published(spark, "join", implementation)
    assert sorted(map(str, rows)) == sorted(map(str, same))


@pytest.mark.parametrize("domain", [DOMAIN, TWO_TIMES], ids=["one name", "two names"])
def test_a_window_takes_what_a_join_publishes(spark, domain):
    rows = published(spark, "joins", "built-in", domain)
    assert of_windows(rows, "joins") == dict.fromkeys(range(3), (2,))


@implementation
def test_a_filter_takes_what_a_join_publishes(spark, implementation):
    rows = published(spark, "high", implementation)
    assert sorted(row["highest"] for row in rows) == [5.0, 6.0, 6.0, 8.0]


@implementation
def test_an_aggregate_keeps_the_columns_of_its_inputs_apart(spark, implementation):
    rows = published(spark, "total", implementation)
    assert of_windows(rows, "parts", "sum", "mean", "lowest") == {
        0: (2, 5.0, 6.0, 2.0),
        1: (2, 10.0, 2.0, 1.0),
        2: (2, 5.0, 4.5, 0.0),
    }


@implementation
def test_a_change_compares_the_newest_window_with_those_before(spark, implementation):
    rows = published(spark, "change", implementation)
    assert of_windows(rows, "by", "by_two")[0] == (-0.5, -0.25)


def test_a_decode_has_null_where_no_input_has_the_column(spark):
    (row, *_) = published(spark, "parse", "customised")
    assert row == {"run_id": "r", "id": "i", "part": "p", "x": 2.0, "no": None}
