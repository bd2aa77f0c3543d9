"""What a driver derives from a pipeline and a plan: settings, offsets, stages, progress events."""

import json
from pathlib import Path

import pytest

from schemas.engine import LINE, EnginePlan
from services.spark_pipeline.driver import conf_of
from services.spark_pipeline.progress import (
    ProgressReporter,
    StageReading,
    epoch_ms,
    lag_of,
    progress_fields,
)
from services.spark_pipeline.queries import (
    cause_of_stop,
    is_initialised,
    is_ready,
    one_line,
    starting_offsets,
)
from services.spark_pipeline.session import (
    LATE_OPTIMISING,
    ONLY_QUICK,
    slots,
    spark_conf,
)
from services.spark_pipeline.settings import SparkPipeline, SparkSettings
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

SETTINGS = SparkSettings()

PROGRESS = {
    "id": "7a", "name": "join", "batchId": 12, "numInputRows": 40, "batchDuration": 130,
    "inputRowsPerSecond": 400.0, "processedRowsPerSecond": 307.5,
    "eventTime": {"watermark": "2026-01-01T00:00:01.500Z"},
    "stateOperators": [{"numRowsTotal": 20, "memoryUsedBytes": 4096}],
}  # fmt: skip


def pipeline(**fields):
    given = {
        "name": "p",
        "summary": "-",
        "engine": "spark",
        "mode": "real-time",
        "implementation": "customised",
    }
    return SparkPipeline.model_validate(given | fields)


def plan():
    return EnginePlan(
        run_id="r",
        pipeline=pipeline(),
        domain=TRAFFIC,
        outputs={"join": "output.p.join"},
        start_offsets={"traffic.flow": (3, 0), "traffic.speed": (4, 7)},
        bootstrap="broker:9092",
        group="engine.a.r1",
        warm_up_s=0,
        deadline_ms=10_000,
        folder="/data/runs/r/p",
    )


@pytest.mark.parametrize(
    ("stages", "input_partitions", "shuffle_partitions", "needed"),
    [
        (("ingest",), 1, 1, 2),
        (("join",), 1, 1, 3),
        (TRAFFIC.stage_names, 1, 1, 13),
        (TRAFFIC.stage_names, 2, 4, 32),
    ],
)
def test_every_task_of_every_query_has_a_slot(stages, input_partitions, shuffle_partitions, needed):
    given = pipeline(shuffle_partitions=shuffle_partitions)
    assert slots(given, TRAFFIC, stages, input_partitions) == needed


def test_real_time_has_slots_for_output_topics_that_have_more_partitions_than_inputs():
    given = pipeline(topology="via-topics")
    more = {
        "outputs": {"ingest": "output.p.ingest", "parse": "output.p.parse"},
        "output_offsets": {"output.p.ingest": (0,) * 5, "output.p.parse": (0,) * 5},
    }
    conf = conf_of(plan().model_copy(update=more), given, SETTINGS, Path("/data/runs/r/p/scratch"))
    # Two topics of two partitions, then one of five.
    assert conf["spark.master"] == "local[9]"


def test_a_setting_of_the_pipeline_wins():
    given = pipeline(spark_conf={"spark.master": "local[99]", "spark.x": "y"})
    conf = spark_conf(
        given, TRAFFIC, TRAFFIC.stage_names, 1, settings=SETTINGS, scratch=Path("/scratch")
    )
    assert conf["spark.master"] == "local[99]"
    assert conf["spark.x"] == "y"
    assert conf["spark.local.dir"] == "/scratch"


def test_only_real_time_mode_shortens_the_wait_of_network_buffers():
    key = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
    fast = spark_conf(
        pipeline(), TRAFFIC, ("join",), 1, settings=SETTINGS, scratch=Path("/scratch")
    )
    slow = spark_conf(
        pipeline(mode="micro-batch"),
        TRAFFIC,
        ("join",),
        1,
        settings=SETTINGS,
        scratch=Path("/scratch"),
    )
    assert fast[key] == "2"
    assert key not in slow


@pytest.mark.parametrize(
    ("state_store", "provider"),
    [("rocksdb", "RocksDBStateStoreProvider"), ("hdfs", "HDFSBackedStateStoreProvider")],
)
def test_a_pipeline_chooses_its_state_store(state_store, provider):
    given = pipeline(mode="micro-batch", state_store=state_store)
    conf = spark_conf(given, TRAFFIC, ("join",), 1, settings=SETTINGS, scratch=Path("/scratch"))
    found = conf["spark.sql.streaming.stateStore.providerClass"]
    assert found == f"org.apache.spark.sql.execution.streaming.state.{provider}"


@pytest.mark.parametrize(
    ("quick_compiler", "warm_up_s", "options"),
    [(True, 59, ONLY_QUICK), (False, 59, LATE_OPTIMISING), (True, 60, ()), (False, 60, ())],
)
def test_a_short_warm_up_is_not_spent_on_optimising(quick_compiler, warm_up_s, options):
    given = pipeline(quick_compiler=quick_compiler, jvm_options=("-XX:X",))
    conf = spark_conf(
        given,
        TRAFFIC,
        ("join",),
        1,
        settings=SETTINGS,
        scratch=Path("/scratch"),
        warm_up_s=warm_up_s,
    )
    found = conf["spark.driver.extraJavaOptions"]
    assert options == tuple(o for o in (*ONLY_QUICK, *LATE_OPTIMISING) if o in found)
    assert found.endswith("-XX:X")  # the last one wins


@pytest.mark.parametrize(
    ("jvm_options", "collectors"),
    [((), ["-XX:+UseSerialGC"]), (("-XX:+UseG1GC",), ["-XX:+UseG1GC"])],
)
def test_a_jvm_has_one_collector_that_of_the_pipeline_if_it_names_one(jvm_options, collectors):
    given = pipeline(jvm_options=jvm_options)
    conf = spark_conf(given, TRAFFIC, ("join",), 1, settings=SETTINGS, scratch=Path("/scratch"))
    words = conf["spark.driver.extraJavaOptions"].split()
    assert [word for word in words if word.endswith("GC")] == collectors


def test_reading_begins_at_the_offsets_of_the_plan_in_both_input_topics():
    assert json.loads(starting_offsets(plan(), TRAFFIC.topics)) == {
        "traffic.flow": {"0": 3, "1": 0},
        "traffic.speed": {"0": 4, "1": 7},
    }


@pytest.mark.parametrize(
    ("message", "initialised"),
    [
        ("Initializing sources", False),
        ("Getting offsets from KafkaV2[Subscribe[traffic.flow, traffic.speed]]", False),
        ("Processing new data", True),
        ("Waiting for data to arrive", True),
        ("Waiting for next trigger", True),
        ("Running", True),  # the only report of continuous mode
    ],
)
def test_a_query_is_initialised_once_it_has_its_offsets(message, initialised):
    assert is_initialised({"message": message}) is initialised


@pytest.mark.parametrize(
    ("message", "batches", "ready"),
    [
        ("Initializing sources", 0, False),
        ("Processing new data", 0, False),
        ("Processing new data", 1, True),
        ("Waiting for data to arrive", 0, True),
        ("Waiting for next trigger", 1, True),
    ],
)
def test_a_query_with_python_workers_is_ready_after_its_first_batch(message, batches, ready):
    query = Query()
    query.status = {"message": message}
    for second in range(batches):
        query.progress(second)
    assert is_ready(query, has_workers=True) is ready
    assert is_ready(query) is is_initialised(query.status)


FULL_HEAP = """2026-11-27T11:45:05.737Z WARN Utils: Your hostname resolves to a loopback address
2026-11-27T11:46:05.100Z ERROR Executor: Exception in task 0.0 in stage 9.0 (TID 9)
java.lang.OutOfMemoryError: Java heap space
	at a.B.c(B.scala:1)
2026-11-27T11:46:05.737Z ERROR Utils: uncaught error in thread spark-listener-group-shared, \
stopping SparkContext
java.lang.OutOfMemoryError: Java heap space
	at a.B.c(B.scala:1)
2026-11-27T11:46:06.001Z ERROR MicroBatchExecution: Query join terminated with error
java.lang.NullPointerException: Cannot invoke "DAGScheduler.cleanupQueryJobs(long)"
""".replace("\\\n", "")
OF_THE_SCHEDULER = """2026-11-27T11:46:05.737Z ERROR DAGSchedulerEventProcessLoop: \
DAGSchedulerEventProcessLoop failed; shutting down SparkContext
2026-11-27T11:46:06.001Z ERROR MicroBatchExecution: Query join terminated with error
""".replace("\\\n", "")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            FULL_HEAP,
            "uncaught error in thread spark-listener-group-shared, stopping SparkContext "
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (OF_THE_SCHEDULER, "DAGSchedulerEventProcessLoop failed; shutting down SparkContext"),
        ("", "its log does not say why"),
    ],
    ids=["full heap", "scheduler", "empty log"],
)
def test_the_cause_of_a_stopped_context_is_the_first_message_that_tells_it(log, cause):
    assert cause_of_stop(log) == cause


def test_progress_becomes_a_line_of_the_contract():
    fields = progress_fields(PROGRESS)
    line = LINE.validate_json(json.dumps({"event": "progress"} | fields))
    assert line.detail == PROGRESS
    assert line.model_dump(exclude={"event", "detail"}) == {
        "stage": "join", "batch_id": 12, "input_rows": 40,
        "input_rows_per_second": 400.0, "processed_rows_per_second": 307.5,
        "batch_duration_ms": 130, "state_rows": 20, "state_bytes": 4096,
        "watermark": 1_767_225_601_500, "lag_records": None,
    }  # fmt: skip


def test_progress_of_a_stateless_query_has_no_state_and_no_watermark():
    bare = {"name": "parse", "batchId": 0, "numInputRows": 0, "eventTime": {}}
    fields = progress_fields(bare)
    assert (fields["state_rows"], fields["state_bytes"], fields["watermark"]) == (None, None, None)
    assert fields["input_rows_per_second"] is None


def test_rows_of_state_that_nobody_counts_are_unknown():
    fields = progress_fields(PROGRESS, counts_rows=False)
    assert (fields["state_rows"], fields["state_bytes"]) == (None, 4096)


def test_the_lag_is_what_a_batch_left_of_all_partitions():
    ends = {"a": {"0": 5, "1": 7}, "b": {"0": 1}}
    source = {"endOffset": ends, "latestOffset": {"a": {"0": 9, "1": 7}, "b": {"0": 3, "1": 4}}}
    other = {"endOffset": {"c": {"0": 8}}, "latestOffset": {"c": {"0": 10}}}
    assert lag_of({"sources": [source, other]}) == 4 + 2 + 4 + 2
    assert lag_of({"sources": [source, {"endOffset": ends, "latestOffset": None}]}) is None
    assert lag_of({}) is None


def test_times_of_progress_are_epoch_milliseconds_in_utc():
    assert epoch_ms("1970-01-01T00:00:01.250Z") == 1250


def test_the_reason_of_a_failure_is_one_line_without_stack_trace():
    text = "[OFFSET] Gone:\n\n  0 to 5\n\n=== Streaming Query ===\nx\nJVM stacktrace:\n\tat a.b"
    assert one_line(text) == "[OFFSET] Gone: 0 to 5"
    assert one_line("y" * 1000) == "y" * 600


class Query:
    """A query with progress reports only."""

    name = "join"

    def __init__(self):
        self.recentProgress = []

    @property
    def lastProgress(self):  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def progress(self, second):
        report = StreamingQueryReport(PROGRESS | {"timestamp": f"2026-01-01T00:00:0{second}.000Z"})
        self.recentProgress.append(report)


class StreamingQueryReport(dict):
    """A dict with its own JSON, like Spark's reports."""

    @property
    def json(self):
        return json.dumps(self)


class Voice:
    """Collects the output lines."""

    def __init__(self):
        self.times = []
        self.lines = []
        self.tasks_by_delay = []

    def tasks(self, by_delay):
        self.tasks_by_delay.append(by_delay)

    def progress(self, **fields):
        self.lines.append(fields)
        if "detail" in fields:
            self.times.append(fields["detail"]["timestamp"][-6:-1])


def test_every_progress_report_is_said_once():
    query, voice = Query(), Voice()
    reporter = ProgressReporter(voice)
    reporter.report([query])
    query.progress(1)
    query.progress(2)
    reporter.report([query])
    reporter.report([query])
    query.progress(3)
    reporter.report([query])
    assert voice.times == ["1.000", "2.000", "3.000"]


class Meters:
    """Consecutive readings of the consumers."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self):
        return self.readings.pop(0)


def test_scheduler_delays_are_said_once_a_second_if_a_task_ended():
    voice, clock = Voice(), [10.0]
    delays = Meters({3: 17, 4: 2}, {}, {0: 1})
    reporter = ProgressReporter(voice, delays=delays, clock_s=lambda: clock[0])
    for now_s in (10.5, 11.0, 11.9, 12.0, 13.0):
        clock[0] = now_s
        reporter.report([])
    assert voice.tasks_by_delay == [{3: 17, 4: 2}, {0: 1}]
    assert delays.readings == []


def test_between_reports_the_consumers_say_once_a_second_what_was_read():
    query, voice, clock = Query(), Voice(), [10.0]
    meters = Meters({"join": StageReading(800, 30)}, {"join": StageReading(200, None)})
    reporter = ProgressReporter(voice, meters=meters, clock_s=lambda: clock[0])
    reporter.report([query])
    assert voice.lines == []
    for now_s in (12.0, 12.9, 13.0):
        clock[0] = now_s
        reporter.report([query])
    assert voice.lines == [
        {"stage": "join", "batch_id": -1, "input_rows": 800, "input_rows_per_second": 400.0,
         "lag_records": 30},
        {"stage": "join", "batch_id": -1, "input_rows": 200, "input_rows_per_second": 200.0,
         "lag_records": None},
    ]  # fmt: skip
    query.progress(1)
    reporter.report([query])
    # Its 40 rows were already counted.
    assert [line["input_rows"] for line in voice.lines] == [800, 200, 0]
    assert voice.lines[-1]["detail"]["numInputRows"] == 40
