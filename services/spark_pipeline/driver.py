"""One pipeline of one run: `python -m services.spark_pipeline.driver PLAN`.

Starts the queries, from their checkpoints after a restart in the same run, reports ready once all
of them read, and watches them until SIGTERM (exit 0) or until one fails (reported, exit 1). If
Spark stops its own SparkContext, it exits with 1 without a report, as a killed driver does.
Standard input is a pipe held open by the runner: the driver ends when it is closed. The JVM ends
with the driver in the same way.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from schemas.engine import EnginePlan
from schemas.validation_errors import DefinitionError
from services.runtime.process import stop_on_signals
from services.runtime.program import Voice, end_with_parent, read_plan
from services.runtime.settings import load_settings
from services.spark_pipeline.faulty_record import watch_file
from services.spark_pipeline.outputs import Own, own_functions
from services.spark_pipeline.progress import ProgressReporter, delays_of, meters_of
from services.spark_pipeline.queries import (
    Failure,
    Locations,
    StageError,
    cause_of_stop,
    start_query,
    watch,
)
from services.spark_pipeline.session import (
    class_path,
    counts_state_rows,
    driver_archive,
    effective,
    is_stopped,
    open_session,
    spark_conf,
)
from services.spark_pipeline.settings import SparkPipeline, SparkSettings, forget_secret_variables
from services.spark_pipeline.wire import Undecodable

LOG_BYTES = 1024 * 1024
ENDED = (Py4JError, ConnectionError)  # of calls to a JVM that has ended


def main() -> int:
    """Run the pipeline until told to stop."""
    plan, settings = read_plan(), load_settings(SparkSettings)
    pipeline = SparkPipeline.model_validate(plan.pipeline.model_dump())
    voice = Voice()
    end_with_parent()
    stop = stop_on_signals()
    try:
        is_own = pipeline.implementation == "own"
        own = own_functions(plan.domain, settings.data) if is_own else {}
    except DefinitionError as error:
        return _say_failed(voice, Failure("", str(error)))
    scratch = Path(plan.folder) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    archive = driver_archive(pipeline, settings)
    conf = conf_of(plan, pipeline, settings, scratch, archive.options() if archive else ())

    forget_secret_variables()
    spark = open_session(pipeline.name, conf, scratch)
    if archive is not None:
        archive.record(class_path(spark))
    if plan.raise_file:
        watch_file(spark, plan.raise_file)
    place = Locations(settings.kafka_options(plan.bootstrap), _checkpoints(settings, plan))
    try:
        queries = start_queries(spark, pipeline, plan, place, own)
        undecodable = Undecodable(plan)
    except (StageError, KafkaException) as error:
        _close(spark, spark.streams.active, scratch)
        stage = error.stage if isinstance(error, StageError) else ""
        return _say_failed(voice, Failure(stage, str(error)))

    has_long_batches = pipeline.mode != "micro-batch"
    meters = meters_of(spark, plan.group) if has_long_batches else None
    delays = None if has_long_batches else delays_of(spark)
    progress = ProgressReporter(voice, counts_state_rows(conf), meters, delays)

    def report() -> None:
        progress.report(queries)
        undecodable.pass_on(voice)

    say_ready = partial(_say_ready, voice, spark, conf)
    try:
        failure = watch(queries, stop, say_ready, report, has_workers=pipeline.starts_python)
        was_stopped = failure is not None and is_stopped(spark)
    except ENDED:
        failure, was_stopped = None, True
    cause = cause_of_stop(_own_log()) if was_stopped else ""
    undecodable.close()
    with suppress(*ENDED, PySparkException) if was_stopped else nullcontext():
        _close(spark, queries, scratch)
    if was_stopped:  # not a failure of a query: the agent restarts the program
        print(f"Spark stopped its SparkContext: {cause}", file=sys.stderr, flush=True)
        return 1
    return 0 if failure is None else _say_failed(voice, failure)


def _say_ready(voice: Voice, spark: SparkSession, conf: dict[str, str]) -> None:
    voice.ready(**effective(spark, conf))


def _own_log() -> str:
    """The end of the log that standard error is written to; empty if it is not a file."""
    with suppress(OSError), open("/proc/self/fd/2", "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
        return log.read().decode(errors="replace")
    return ""


def conf_of(
    plan: EnginePlan,
    pipeline: SparkPipeline,
    settings: SparkSettings,
    scratch: Path,
    classes: tuple[str, ...] = (),
) -> dict[str, str]:
    """Session settings for a plan. classes: options for the class data sharing archive."""
    return spark_conf(
        pipeline,
        plan.domain,
        tuple(plan.outputs),
        _partitions(plan.start_offsets),
        settings=settings,
        scratch=scratch,
        output_partitions=_partitions(plan.output_offsets),
        warm_up_s=plan.warm_up_s,
        classes=classes,
    )


def _say_failed(voice: Voice, failure: Failure) -> int:
    print(f"{failure.stage}: {failure.reason}", file=sys.stderr, flush=True)
    voice.failed(failure.stage, failure.reason)
    return 1


def start_queries(
    spark: SparkSession, pipeline: SparkPipeline, plan: EnginePlan, place: Locations, own: Own
) -> list[StreamingQuery]:
    """Start one query per stage, concurrently: each waits for Kafka metadata."""
    with ThreadPoolExecutor(len(plan.outputs)) as starters:
        return list(
            starters.map(
                lambda stage: start_query(spark, pipeline, stage, plan=plan, place=place, own=own),
                plan.outputs,
            )
        )


def _checkpoints(settings: SparkSettings, plan: EnginePlan) -> str:
    if settings.spark_checkpoints:
        return f"{settings.spark_checkpoints.rstrip('/')}/{Path(plan.folder).parent.name}"
    return f"{plan.folder}/checkpoints"


def _partitions(offsets: Mapping[str, tuple[int, ...]]) -> int:
    return max(map(len, offsets.values()), default=0)


def _close(spark: SparkSession, queries: list[StreamingQuery], scratch: Path) -> None:
    spark.sparkContext.setLogLevel("OFF")  # each interrupted task would log a stack trace
    with ThreadPoolExecutor(len(queries) or 1) as stoppers:
        list(stoppers.map(lambda query: query.stop(), queries))
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
