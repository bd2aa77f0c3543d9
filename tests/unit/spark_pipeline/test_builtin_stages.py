"""The built-in stages: their logic on static rows, and the watermark in real batches."""

import json

import pytest

from services.spark_pipeline.outputs import built_in, stateful_steps
from services.spark_pipeline.stages.rows import Inputs
from services.spark_pipeline.wire import fitted
from tests.traffic import TRAFFIC
from tests.unit.spark_pipeline.observations import OBSERVATION, both, flow, speed, within

pytestmark = pytest.mark.integration


def published(stage, flows, speeds, **windows):
    """The outputs of a built-in stage for both inputs."""
    domain = TRAFFIC.resolved(windows)
    frames = {"flow": flows, "speed": speeds}
    made = built_in(frames, stateful_steps(domain, stage), Inputs.of(domain, stage))
    return fitted(made, domain.stage(stage).record, domain.codec)


def rows_of(stage, spark, observations, **windows):
    """Rows of a stage on static data: there is no watermark, and every window is closed."""
    frame = spark.createDataFrame(observations, OBSERVATION)
    flows = frame.where("flow_vehicles_per_hour IS NOT NULL")
    speeds = frame.where("speed_km_per_hour IS NOT NULL")
    return [within(row) for row in published(stage, flows, speeds, **windows).collect()]


def test_join_makes_one_row_per_pair_whichever_comes_first(spark):
    rows = [speed(0, 80.5, "lane1", 2), flow(1, 60), flow(0, 120, "lane1", 2), flow(0, 1, "lane2")]
    assert rows_of("join", spark, rows) == [
        {"run_id": "r", "measurement_id": "s", "lane": "lane1", "num_lanes": 2, "observed_at": 0,
         "flow_vehicles_per_hour": 120, "speed_km_per_hour": 80.5}
    ]  # fmt: skip


def test_tumbling_publishes_a_complete_window_as_the_customised_one_does(spark):
    rows = [*both(0, 60, 70.0, lane="lane1", num_lanes=2), *both(0.9, 0, 93.0, lane="lane2")]
    assert rows_of("tumbling", spark, rows) == [
        {"run_id": "r", "measurement_id": "s", "window_start": 0, "window_end": 1, "lanes": 2,
         "accumulated_flow_vehicles_per_hour": 60, "average_speed_km_per_hour": 81.5}
    ]  # fmt: skip


def test_tumbling_publishes_a_window_that_lacks_a_lane_with_what_it_has(spark):
    rows = [*both(0, 60, 70.0, num_lanes=2), flow(0, 30, lane="lane2", num_lanes=2)]
    (found,) = rows_of("tumbling", spark, rows)
    assert (found["lanes"], found["accumulated_flow_vehicles_per_hour"]) == (2, 90)
    assert found["average_speed_km_per_hour"] == 70.0


@pytest.mark.parametrize("lonely", [flow(0, 60), speed(0, 70.0)], ids=["flow", "speed"])
def test_tumbling_publishes_nothing_of_one_kind_alone(spark, lonely):
    assert rows_of("tumbling", spark, [lonely]) == []


def test_sliding_gives_the_change_against_one_and_two_seconds_before(spark):
    rows = [*both(2, 150, 99.0), *both(0, 120, 66.0), *both(1, 100, 88.0)]
    found = {row["window_start"]: row for row in rows_of("sliding", spark, rows)}
    assert sorted(found) == [-2, -1, 0]
    assert found[0] == {
        "run_id": "r", "measurement_id": "s", "window_start": 0, "window_end": 3,
        "flow_change_short": 0.5, "flow_change_long": 0.25,
        "speed_change_short": 0.125, "speed_change_long": 0.5,
    }  # fmt: skip


def test_sliding_has_no_change_against_a_second_that_has_nothing(spark):
    rows = [*both(0, 120, 66.0), flow(1, 100), *both(2, 150, 99.0)]
    found = {row["window_start"]: row for row in rows_of("sliding", spark, rows)}
    assert sorted(found) == [-2, 0]  # the window whose newest second is 1 has no mean speed
    assert found[0]["flow_change_short"] is None
    assert (found[0]["flow_change_long"], found[0]["speed_change_long"]) == (0.25, 0.5)


def test_long_windows_count_lanes_and_not_their_flows(spark):
    rows = [
        *both(0, 10, 40.0, num_lanes=2),
        *both(1, 30, 60.0, num_lanes=2),
        flow(1, 50, lane="lane2", num_lanes=2),
    ]
    (found,) = rows_of("tumbling", spark, rows, tumbling_s=60, sliding_s=180)
    assert (found["window_start"], found["window_end"], found["lanes"]) == (0, 60, 2)
    assert found["accumulated_flow_vehicles_per_hour"] == 90
    assert found["average_speed_km_per_hour"] == 50.0


def test_long_sliding_windows_compare_their_newest_parts(spark):
    # Parts of a minute; the first two of five are empty.
    rows = [*both(125, 20, 80.0), *both(180, 10, 40.0), *both(239, 30, 60.0), *both(290, 10, 20.0)]
    found = {
        row["window_start"]: row
        for row in rows_of("sliding", spark, rows, tumbling_s=60, sliding_s=300)
    }
    # Flows 20, 40, 10; mean speeds 80, 50, 20.
    assert found[0] == {
        "run_id": "r", "measurement_id": "s", "window_start": 0, "window_end": 300,
        "flow_change_short": -0.75, "flow_change_long": -0.5,
        "speed_change_short": -0.6, "speed_change_long": -0.75,
    }  # fmt: skip


class Batches:
    """A stage as a query over files, one batch per call: rows in, published rows out."""

    def __init__(self, spark, stage, folder):
        self.spark, self.folder, self.number = spark, folder, 0
        self.topics = {kind: folder / kind for kind in ("flow", "speed")}
        for topic in self.topics.values():
            topic.mkdir(parents=True)
        flows, speeds = (self._stream(folder) for folder in self.topics.values())
        self.name = f"{stage}_{folder.name}".replace("-", "_")
        self.query = (
            published(stage, flows, speeds).writeStream.outputMode("append").format("memory")
            .option("checkpointLocation", str(folder / "checkpoint")).queryName(self.name).start()
        )  # fmt: skip

    def _stream(self, folder):
        files = self.spark.readStream.schema(OBSERVATION).json(str(folder))
        return files.withWatermark("observed_at", "0 seconds")

    def add(self, *rows):
        """Add the rows, wait until they cause no further output, and return all rows published so
        far."""
        names = [part.split()[0] for part in OBSERVATION.split(", ")]
        self.number += 1
        for kind, column in (("flow", -2), ("speed", -1)):
            lines = [
                json.dumps(dict(zip(names, row, strict=True)), default=str)
                for row in rows
                if row[column] is not None
            ]
            if lines:
                hidden = self.topics[kind] / f".{self.number}"
                hidden.write_text("\n".join(lines))
                hidden.rename(self.topics[kind] / f"{self.number}.json")
        self.query.processAllAvailable()
        self.query.processAllAvailable()
        return [within(row) for row in self.spark.table(self.name).collect()]


@pytest.fixture
def batches(spark, tmp_path):
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    before = spark.conf.get(key, "true")
    spark.conf.set(key, "true")
    started = []

    def start(stage):
        started.append(Batches(spark, stage, tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.query.stop()
    spark.conf.set(key, before)


def test_a_window_closes_when_both_topics_have_shown_the_next_second(batches):
    windows = batches("tumbling")
    assert windows.add(*both(0, 60, 70.0)) == []
    assert windows.add(flow(1, 60)) == []
    (found,) = windows.add(speed(1, 70.0))
    assert (found["window_start"], found["window_end"]) == (0, 1)


def test_a_record_that_comes_after_its_window_closed_is_not_in_it_nor_in_another(batches):
    windows = batches("tumbling")
    windows.add(*both(0, 60, 70.0), *both(1, 60, 70.0))
    found = windows.add(*both(0, 30, 70.0, lane="lane2"), *both(2, 60, 70.0))
    flows = {row["window_start"]: row["accumulated_flow_vehicles_per_hour"] for row in found}
    assert flows == {0: 60, 1: 60}


def test_a_record_that_comes_twice_within_its_window_counts_twice(batches):
    windows = batches("tumbling")
    windows.add(*both(0, 60, 70.0))
    (found,) = windows.add(flow(0, 60), *both(1, 60, 70.0))
    assert found["accumulated_flow_vehicles_per_hour"] == 120


def test_a_sliding_window_closes_with_the_tumbling_window_of_its_newest_second(batches):
    windows = batches("sliding")
    seconds = [both(second, 100 + 50 * second, 50.0) for second in range(4)]
    windows.add(*seconds[0])
    found = [{row["window_end"] for row in windows.add(*rows)} for rows in seconds[1:]]
    assert found == [{1}, {1, 2}, {1, 2, 3}]
