"""Chained and via topics: each stage computed from the outputs of the previous one, on static
rows."""

import json

import pytest

from services.definitions.pipelines import rewired
from services.spark_pipeline.outputs import StageSource, outputs
from services.spark_pipeline.session import slots
from services.spark_pipeline.settings import SparkPipeline
from tests.traffic import CODEC, TRAFFIC
from tests.unit.spark_pipeline.observations import START_MS, at
from tests.unit.spark_pipeline.test_implementations import DOMAIN, IMPLEMENTATIONS, RAW

pytestmark = pytest.mark.integration

VIA_TOPICS = SparkPipeline(
    name="p", summary="-", engine="spark", mode="real-time", topology="via-topics"
)
CHAINED = IMPLEMENTATIONS["built-in"].model_copy(
    update={"topology": "chained", "window_watermark_ms": 50}
)
FIELDS = {"flow": "flow_vehicles_per_hour", "speed": "speed_km_per_hour"}
# Flow and speed of the lanes of site A by second; the third second lacks a speed.
SECONDS = (
    {"lane1": (60, 80.0), "lane2": (40, 40.0)},
    {"lane1": (0, 100.0), "lane2": (50, 50.0)},
    {"lane1": (75, 90.0), "lane2": (75, None)},
)


def observation(kind, second, lane, value):
    return {
        "measurement_id": "A", "lane": lane, "num_lanes": 2, "latitude": 52.5, "longitude": 4.75,
        "observed_at": START_MS + 1000 * second, "period_s": 60, "accuracy_percent": 95,
        "sequence": second, "run_id": "r", "scheduled_at": START_MS, FIELDS[kind]: value,
    }  # fmt: skip


OBSERVATIONS = [
    (f"traffic.{kind}", observation(kind, second, lane, value))
    for second, lanes in enumerate(SECONDS)
    for lane, both in lanes.items()
    for kind, value in zip(FIELDS, both, strict=True)
    if value is not None
]


def encoded(topic, record, wire_format):
    if wire_format == "avro":
        return CODEC.encode(topic.replace(".", "_"), record)
    return json.dumps(record).encode()


class Topics:
    """Topics as static rows: the inputs, and the published outputs."""

    def __init__(self, spark, wire_format="avro"):
        values = [(topic, encoded(topic, one, wire_format)) for topic, one in OBSERVATIONS]
        values.append(("traffic.flow", b"no record"))
        self.rows = [(topic, b"A", value, 0, 0, at(60)) for topic, value in values]
        self.source = StageSource(self._read, "undecodable", wire_format)
        self._spark = spark

    def _read(self, topics):
        found = [row for row in self.rows if row[0] in topics]
        return self._spark.createDataFrame(found, RAW)

    def publish(self, stage, pipeline, domain=TRAFFIC):
        """Compute a stage from the topics and add its outputs to its topic."""
        rows = outputs(self.source, domain, stage, pipeline).collect()
        made = [row for row in rows if "topic" not in row or row["topic"] != "undecodable"]
        topic = f"output.{pipeline.name}.{stage}"
        self.rows += [(topic, bytes(r["key"]), bytes(r["value"]), 0, 0, at(60)) for r in made]
        return [bytes(row["value"]) for row in made]


TUMBLING = {(0, 2, 100, 60.0), (1, 2, 50, 75.0)}


def windows(values):
    found = (CODEC.decode(value)[1] for value in values)
    return {
        (
            (row["window_start"] - START_MS) // 1000,
            row["lanes"],
            row["accumulated_flow_vehicles_per_hour"],
            row["average_speed_km_per_hour"],
        )
        for row in found
    }


@pytest.mark.parametrize("wire_format", ["avro", "json"])
def test_via_topics_each_stage_reads_what_the_one_before_published(spark, wire_format):
    topics = Topics(spark, wire_format)
    assert len(topics.publish("ingest", VIA_TOPICS)) == 12
    topics.rows = [row for row in topics.rows if row[0].startswith("output.")]  # no inputs
    parsed = [CODEC.decode(value)[1] for value in topics.publish("parse", VIA_TOPICS)]
    names = ("observed_at", "flow_vehicles_per_hour", "speed_km_per_hour")
    assert {tuple(row[name] for name in names) for row in parsed if row["lane"] == "lane2"} == {
        *((START_MS + 1000 * second, flow, None) for second, flow in enumerate((40, 50, 75))),
        *((START_MS + 1000 * second, None, speed) for second, speed in enumerate((40.0, 50.0))),
    }
    assert len(parsed) == 11
    joined = [CODEC.decode(value)[1] for value in topics.publish("join", VIA_TOPICS)]
    assert sorted(row["flow_vehicles_per_hour"] for row in joined) == [0, 40, 50, 60, 75]
    assert windows(topics.publish("tumbling", VIA_TOPICS)) == TUMBLING


def test_via_topics_a_sliding_window_waits_for_every_window_that_it_is_about(spark):
    topics = Topics(spark)
    whole = {"run_id": "r", "measurement_id": "A", "lanes": 2}
    for second, flow, speed in ((0, 100, 60.0), (1, 50, 75.0), (2, 150, 90.0), (3, 75, 45.0)):
        start = START_MS + 1000 * second
        row = whole | {
            "window_start": start, "window_end": start + 1000,
            "accumulated_flow_vehicles_per_hour": flow, "average_speed_km_per_hour": speed,
        }  # fmt: skip
        value = CODEC.encode("output_tumbling", row)
        copies = 2 if second == 1 else 1  # repeated after a crash
        topics.rows += [("output.p.tumbling", b"A", value, 0, 0, at(60))] * copies
    found = [CODEC.decode(value)[1] for value in topics.publish("sliding", VIA_TOPICS)]
    assert {row["window_start"]: row["flow_change_long"] for row in found} == {
        START_MS: 0.5,
        START_MS + 1000: 0.5,
    }
    assert {row["window_start"]: row["speed_change_short"] for row in found} == {
        START_MS: 0.2,
        START_MS + 1000: -0.5,
    }


def test_outputs_that_do_not_tell_their_input_cannot_be_joined(spark):
    source = StageSource(lambda _topics: spark.createDataFrame([], RAW), "undecodable")
    reason = "join needs the input of each record, but outputs of parse do not identify those of a"
    with pytest.raises(ValueError, match=reason):
        outputs(source, DOMAIN, "join", VIA_TOPICS)


def test_a_chain_takes_the_windows_from_the_join(spark):
    topics = Topics(spark)
    # lane2 has no pair in the third second, so its flow is not in the window.
    chain = rewired(TRAFFIC, {"tumbling": "join"})
    assert windows(topics.publish("tumbling", CHAINED, chain)) == {*TUMBLING, (2, 1, 75, 90.0)}
    assert windows(topics.publish("tumbling", CHAINED)) == {*TUMBLING, (2, 2, 150, 90.0)}


def test_via_topics_a_query_needs_a_slot_for_the_one_topic_that_it_reads():
    # ingest 2 topics, parse 1, join 1 + 1, sliding 1 + 1; with two partitions each.
    stages = ("ingest", "parse", "join", "sliding")
    assert slots(VIA_TOPICS, TRAFFIC, stages, 2) == 4 + 2 + 3 + 3
    # With output topics of five: all except those read by ingest.
    assert slots(VIA_TOPICS, TRAFFIC, stages, 2, 5) == 4 + 5 + 6 + 6
    by_itself = VIA_TOPICS.model_copy(update={"topology": "independent"})
    assert slots(by_itself, TRAFFIC, stages, 2) == 4 + 4 + 5 + 5
