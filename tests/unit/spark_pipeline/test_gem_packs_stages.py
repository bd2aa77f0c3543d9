"""Kinds of stages with a domain whose inputs share all their columns: encoded hand-written records
through source, kinds and encoding, and the watermark in real batches."""

import base64
import json

import pytest

from schemas.domain import DomainSpec, StageSpec, Table
from services.spark_pipeline.outputs import StageSource, outputs
from services.spark_pipeline.settings import SparkPipeline
from services.spark_pipeline.stages.rows import Inputs, filtered, looked_up
from tests.gem_packs import GEM_PACKS, IN_SECONDS
from tests.unit.spark_pipeline import gem_packs
from tests.unit.spark_pipeline.gem_packs import CODEC, EXPECTED, PEAKS
from tests.unit.spark_pipeline.observations import START_MS, at

pytestmark = pytest.mark.integration

RAW = "topic string, key binary, value binary, partition int, offset bigint, timestamp timestamp"
BUILT_IN = SparkPipeline(
    name="p", summary="-", engine="spark", mode="micro-batch", implementation="built-in",
    incomplete_windows="publish",
)  # fmt: skip
CUSTOMISED = SparkPipeline(name="p", summary="-", engine="spark", mode="micro-batch")
STATE = SparkPipeline(
    name="p", summary="-", engine="spark", mode="micro-batch", implementation="state"
)


def in_order(rows):
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def read_records(spark, read=None):
    """Reads hand-written records; read: collects the topics that were read."""
    rows = [
        (topic, b"k", gem_packs.value(topic, fields), 0, 0, at(60))
        for topic, fields in gem_packs.records()
    ]
    frame = spark.createDataFrame([*rows, ("gem_packs.ads", b"k", b"no record", 0, 1, at(60))], RAW)

    def of(topics):
        if read is not None:
            read.append(topics)
        return frame.where(frame["topic"].isin(*topics))

    return of


def published(spark, stage, pipeline, domain=GEM_PACKS, read=None):
    source = StageSource(read_records(spark, read), "undecodable")
    rows = outputs(source, domain, stage, pipeline).collect()
    return [
        (bytes(row["key"]), bytes(row["value"])) for row in rows if "undecodable" not in str(row[0])
    ]


@pytest.mark.parametrize("stage", EXPECTED)
def test_built_in_publishes_what_the_stage_says_of_hand_written_records(spark, stage):
    rows = [(key, *CODEC.decode(value)) for key, value in published(spark, stage, BUILT_IN)]
    spec = GEM_PACKS.stage(stage)
    assert in_order(fields for _, _, fields in rows) == in_order(EXPECTED[stage])
    assert {name for _, name, _ in rows} == {spec.record}
    assert all(key == fields[spec.key].encode() for key, _, fields in rows)


def test_built_in_publishes_a_window_of_both_inputs_if_it_has_a_record_of_each(spark):
    rows = published(spark, "peak", BUILT_IN, IN_SECONDS)
    assert in_order(CODEC.decode(value)[1] for _, value in rows) == in_order(PEAKS)


@pytest.mark.parametrize("stage", ["parse", "enriched"])
def test_stages_without_state_are_the_same_in_every_implementation(spark, stage):
    rows = [CODEC.decode(value)[1] for _, value in published(spark, stage, CUSTOMISED)]
    assert in_order(rows) == in_order(EXPECTED[stage])


def test_ingest_publishes_every_value_of_both_inputs(spark):
    assert len(published(spark, "ingest", CUSTOMISED)) == 10


@pytest.mark.parametrize(
    ("stage", "topics"),
    [
        ("revenue", [("gem_packs.purchases",)]),
        ("highest", [("gem_packs.purchases",), ("gem_packs.ads",)]),
        ("peak", [("gem_packs.purchases",), ("gem_packs.ads",)]),
    ],
)
def test_a_stage_reads_only_the_inputs_that_it_is_made_of(spark, stage, topics):
    read = []
    published(spark, stage, BUILT_IN, IN_SECONDS, read=read)
    assert read == topics


@pytest.mark.parametrize("stage", ["revenue", "conversions", "dear_average"])
@pytest.mark.parametrize("pipeline", [CUSTOMISED, STATE], ids=["customised", "state"])
def test_windows_that_time_closes_are_built_in_only(spark, stage, pipeline):
    with pytest.raises(ValueError, match=r"which only built-in has"):
        published(spark, stage, pipeline)


def with_stages(*stages):
    """The domain with other stages, whose records have their own schemas."""
    fields = IN_SECONDS.model_dump()
    return DomainSpec.model_validate(fields | {"stages": [*fields["stages"][:2], *stages]})


@pytest.mark.parametrize(
    ("function", "highest"),
    [("max", 150.0), ("min", 100.0), ("sum", 370.0), ("first", 100.0), ("count", 3.0)],
)
def test_a_function_takes_its_columns_of_all_inputs_that_are_named(spark, function, highest):
    changed = IN_SECONDS.stage("peak").model_dump()
    changed["aggregates"][0]["function"] = function
    domain = with_stages(changed)
    rows = [CODEC.decode(value)[1] for _, value in published(spark, "peak", BUILT_IN, domain)]
    found = {(row["geo"], row["window_start"]): row["highest_price"] for row in rows}
    assert found["g000", START_MS] == highest


@pytest.mark.parametrize(("operator", "users"), [
    ("<", ["a"]), ("<=", ["a", "b"]), ("==", ["b"]), ("!=", ["a", "c"]), (">=", ["b", "c"]),
    (">", ["c"]),
])  # fmt: skip
def test_a_filter_compares_as_its_condition_says(spark, operator, users):
    given = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", None)]
    rows = spark.createDataFrame(given, "user string, x double")
    where = [{"column": "x", "operator": operator, "value": 2}]
    stage = StageSpec(name="f", kind="filter", reads=("a",), record="r", key="user", where=where)
    assert [row["user"] for row in filtered(rows, stage).collect()] == users


def test_a_lookup_finds_every_row_of_a_large_table_and_drops_what_has_none(spark):
    table = Table(
        key="number",
        columns=("text", "half"),
        rows={str(number): (f'"t\\{number}é"', number / 2) for number in range(10_000)},
    )
    stage = StageSpec(name="l", kind="lookup", reads=("a",), record="r", key="number", table=table)
    rows = spark.range(-3, 10_003).withColumnRenamed("id", "number")
    found = looked_up(rows, stage).collect()
    assert [tuple(row) for row in found] == [
        (number, f'"t\\{number}é"', number / 2) for number in range(10_000)
    ]


class Batches:
    """A built-in stage as a query over files, one batch per call: records in, outputs out."""

    def __init__(self, spark, stage, folder, domain):
        self.spark, self.folder, self.number = spark, folder, 0
        for topic in GEM_PACKS.topics:
            (folder / topic).mkdir(parents=True)

        def read(topics):
            (topic,) = topics
            return spark.readStream.schema(RAW).json(str(folder / topic))

        self.name = f"{stage}_{folder.name}".replace("-", "_")
        rows = outputs(StageSource(read, "undecodable"), domain, stage, BUILT_IN)
        self.query = (
            rows.writeStream.outputMode("append").format("memory").queryName(self.name)
            .option("checkpointLocation", str(folder / "checkpoint")).start()
        )  # fmt: skip

    def add(self, purchases=(), ads=()):
        """Add records, wait until they cause no further output, and return all outputs published so
        far."""
        self.number += 1
        for topic, given in zip(GEM_PACKS.topics, (purchases, ads), strict=True):
            values = [gem_packs.value(topic, fields) for fields in given]
            lines = [{"topic": topic, "value": base64.b64encode(each).decode()} for each in values]
            if lines:
                hidden = self.folder / topic / f".{self.number}"
                hidden.write_text("\n".join(map(json.dumps, lines)))
                hidden.rename(self.folder / topic / f"{self.number}.json")
        self.query.processAllAvailable()
        self.query.processAllAvailable()
        return [
            CODEC.decode(bytes(row["value"]))[1] for row in self.spark.table(self.name).collect()
        ]


@pytest.fixture
def batches(spark, tmp_path):
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    before = spark.conf.get(key, "true")
    spark.conf.set(key, "true")
    started = []

    def start(stage, domain=IN_SECONDS):
        started.append(Batches(spark, stage, tmp_path, domain))
        return started[-1]

    yield start
    for each in started:
        each.query.stop()
    spark.conf.set(key, before)


def one(sequence, second, price=200.0, geo="g000", run="r"):
    return gem_packs.record(sequence, "u1", "A", price, geo, second, run)


def windows_of(rows, run="r"):
    """Start second of each window of a run."""
    return sorted((row["window_start"] - START_MS) / 1000 for row in rows if row["run_id"] == run)


@pytest.mark.parametrize("stage", ["peak", "dear_average"])
def test_a_window_closes_when_both_inputs_have_shown_its_end(batches, stage):
    query = batches(stage)
    assert windows_of(query.add([one(0, 0.5)], [one(0, 0.5)])) == []
    assert windows_of(query.add([one(1, 1)])) == []
    assert windows_of(query.add([], [one(1, 1)])) == [0]
    assert windows_of(query.add([one(2, 5)], [one(2, 5)])) == [0, 1]


@pytest.mark.parametrize("stage", ["peak", "dear_average"])
def test_probes_long_before_the_load_neither_stop_the_watermark_nor_drop_the_load(batches, stage):
    query = batches(stage)
    probes = [one(number, number - 60, run="r-probe") for number in range(3)]
    found = query.add(probes, probes[:1])
    assert windows_of(found, "r-probe") == []  # the second input has not reached the end yet
    found = query.add([one(0, 0)], [one(0, 0), one(1, 0.9)])
    assert windows_of(found, "r-probe") == [-60]
    assert windows_of(found) == []
    assert windows_of(query.add([one(1, 0.5), one(2, 1)], [one(2, 0.5), one(3, 1)])) == [0]


def test_a_window_of_one_input_does_not_wait_for_the_other(batches):
    query = batches("average")
    query.add([one(0, 0.5, 100.0), one(1, 0.7, 50.0)])
    (found,) = query.add([one(2, 1)])
    assert (found["window_start"], found["average_price"]) == (START_MS, 75.0)


def test_a_sliding_window_closes_once_with_all_its_records(batches):
    query = batches("revenue")
    query.add([one(0, 1, 1.0), one(1, 5, 2.0)])
    found = query.add([one(2, 8, 4.0), one(3, 12, 8.0)])
    revenue = {(row["window_start"] - START_MS) // 1000: row["revenue"] for row in found}
    assert revenue == {-4: 1.0, 0: 3.0, 4: 6.0}


def test_a_window_of_joins_closes_once_with_the_pairs_of_all_that_end_in_it(batches):
    query = batches("dear_average", GEM_PACKS)
    query.add([one(0, 1, 110.0), one(1, 5, 200.0)], [one(0, 1, 1.0), one(1, 5, 1.0)])
    found = query.add([one(2, 30)], [one(2, 30)])
    averages = {(row["window_start"] - START_MS) // 1000: row["average_price"] for row in found}
    # The joins that start at -4, 0 and 4 have the first pair, both and the second.
    assert averages == {-4: 110.0, 0: (110 + 110 + 200) / 3, 4: (110 + 200 + 200) / 3, 8: 200.0}


def test_a_window_join_publishes_a_pair_in_the_batch_of_its_second_record(batches):
    query = batches("conversions")
    assert query.add([one(0, 1)]) == []
    assert windows_of(query.add([], [one(0, 5)])) == [0]
    found = query.add([one(1, 9)], [one(1, 9.5)])
    assert sorted((row["purchase"], row["ad"]) for row in found) == [(0, 0), (1, 0), (1, 1), (1, 1)]


def test_an_aggregate_takes_one_column_of_each_input():
    with pytest.raises(ValueError, match="one column of each input"):
        Inputs.of(IN_SECONDS, "peak").column(["purchases.price", "purchases.sequence"])
