"""A domain's own `spark.py`: how it is found, and what it replaces."""

import json
from textwrap import dedent

import pytest

from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.trusted import keep_definitions
from services.spark_pipeline.outputs import StageSource, outputs, own_functions
from services.spark_pipeline.settings import SparkPipeline
from tests.unit.spark_pipeline.observations import START_MS, at

RAW = "topic string, key binary, value binary, partition int, offset bigint, timestamp timestamp"
TIME = {"type": "long", "logicalType": "timestamp-millis"}
RECORDS = {
    "reading": {
        "id": "string", "x": "double", "at": TIME, "sequence": "long", "run_id": "string",
        "scheduled_at": TIME,
    },
    "decoded": {"run_id": "string", "sequence": "long", "id": "string", "x": "double"},
    "highest": {
        "run_id": "string", "id": "string", "window_start": TIME, "window_end": TIME, "x": "double",
    },
}  # fmt: skip
DOMAIN = """
    name = "mine"

    [[inputs]]
    name = "readings"
    topic = "mine.readings"
    record = "reading"
    key = "id"
    event_time = "at"

    [[stages]]
    name = "parse"
    kind = "decode"
    reads = ["readings"]
    record = "decoded"
    key = "id"

    [[stages]]
    name = "highest"
    kind = "aggregate"
    reads = ["parse"]
    record = "highest"
    key = "id"
    keys = ["id"]
    window = { size_s = 1, slide_s = 1 }
    aggregates = [{ column = "x", function = "max", of = ["readings.x"] }]

    [[stages]]
    name = "lowest"
    kind = "aggregate"
    reads = ["parse"]
    record = "highest"
    key = "id"
    keys = ["id"]
    window = { size_s = 1, slide_s = 1 }
    aggregates = [{ column = "x", function = "min", of = ["readings.x"] }]
"""
# Adds a thousand, so that a test can see which code computed it.
OWN = '''
    """Stages of one's own."""

    from pyspark.sql import functions as F


    def highest(rows, stage):
        window = F.window("at", f"{stage.window.size_s} seconds")
        return (
            rows.groupBy("run_id", *stage.keys, window)
            .agg((F.max("x") + _thousand()).alias("x"), F.max("_input").alias("of"))
            .where("of = 'readings'")
            .select("*", "window.start", "window.end")
            .withColumnsRenamed({"start": "window_start", "end": "window_end"})
        )


    def _thousand():
        return F.udf(_number, "double")()


    def _number():
        return 1000.0
'''


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "mine"
    home.mkdir()
    (home / "domain.toml").write_text(dedent(DOMAIN))
    (home / "spark.py").write_text(dedent(OWN))
    for name, fields in RECORDS.items():
        listed = [{"name": field, "type": kind} for field, kind in fields.items()]
        schema = {"type": "record", "name": name, "fields": listed}
        (home / f"{name}.v1.avsc").write_text(json.dumps(schema))
    return home


def found_in(folder, data):
    """The functions of a folder read by the command line."""
    domain = load_domain(str(folder))
    keep_definitions(data, [], [], [domain])
    return domain.spec, own_functions(domain.spec, data)


def published(spark, stage, domain, own, **fields):
    given = {
        "name": "p",
        "summary": "-",
        "engine": "spark",
        "mode": "micro-batch",
        "implementation": "own",
    }
    pipeline = SparkPipeline.model_validate(given | fields)
    rows = [
        ("mine.readings", b"k", domain.codec.encode("reading", reading), 0, 0, at(60))
        for reading in (
            {"id": "i", "x": x, "at": START_MS, "sequence": 0, "run_id": "r", "scheduled_at": 0}
            for x in (3.0, 5.0, 4.0)
        )
    ]
    source = StageSource(lambda topics: spark.createDataFrame(rows, RAW), "undecodable", own=own)
    found = outputs(source, domain, stage, pipeline).collect()
    return [domain.codec.decode(bytes(row["value"]))[1]["x"] for row in found]


@pytest.mark.integration
@pytest.mark.parametrize("incomplete_windows", ["withhold", "publish"])
def test_a_function_of_its_own_replaces_that_of_the_kind(
    spark, folder, tmp_path, incomplete_windows
):
    domain, own = found_in(folder, tmp_path)
    fields = {"incomplete_windows": incomplete_windows}
    assert published(spark, "highest", domain, own, **fields) == [1005.0]


@pytest.mark.integration
def test_other_stages_are_built_in_where_the_watermark_closes_windows(spark, folder, tmp_path):
    domain, own = found_in(folder, tmp_path)
    assert published(spark, "lowest", domain, own, incomplete_windows="publish") == [3.0]
    with pytest.raises(ValueError, match="the stage lowest needs aggregate closed"):
        published(spark, "lowest", domain, own)


@pytest.mark.integration
def test_other_implementations_use_none_of_it(spark, folder, tmp_path):
    domain, _ = found_in(folder, tmp_path)
    fields = {"implementation": "built-in", "incomplete_windows": "publish"}
    assert published(spark, "highest", domain, {}, **fields) == [5.0]


@pytest.mark.unit
def test_a_folder_that_the_command_line_has_not_read_is_not_used(folder, tmp_path):
    domain = load_domain(str(folder)).spec
    with pytest.raises(DefinitionError, match="domains/mine on this machine does not exist"):
        own_functions(domain, tmp_path)


@pytest.mark.unit
def test_a_run_with_topics_of_its_own_uses_it(folder, tmp_path):
    domain, _ = found_in(folder, tmp_path)
    renamed = [one.model_copy(update={"topic": f"{one.topic}.p"}) for one in domain.inputs]
    asked = domain.model_copy(update={"inputs": tuple(renamed)})
    assert list(own_functions(asked, tmp_path)) == ["highest"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, r"mine/spark\.py does not exist"),
        ("def other(rows, stage): ...", "has no function that is named after a stage: parse, high"),
        ("def parse(rows, stage): ...", "a decode such as parse cannot be replaced"),
        ("raise OSError('gone')", r"mine/spark\.py fails: OSError: gone"),
    ],
)
def test_what_is_wrong_with_it_is_one_sentence(folder, tmp_path, text, reason):
    (folder / "spark.py").unlink()
    if text is not None:
        (folder / "spark.py").write_text(text)
    with pytest.raises(DefinitionError, match=reason):
        found_in(folder, tmp_path)
