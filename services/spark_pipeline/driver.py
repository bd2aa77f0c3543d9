"""One pipeline of one run: `python -m services.spark_pipeline.driver --pipeline NAME --plan FILE`.

Starts the queries, says READY (PIPELINE_UP when it was started again in the same run, and its
queries go on from their checkpoints), watches them until SIGTERM (exit 0) or until one fails
(FAILED is published, exit 3). Standard input is a pipe that the agent holds open: at its end the
agent is gone, and the driver ends too. So does the JVM when the driver is gone, by a pipe of the
same kind.
"""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from schemas import protocol
from schemas.domain import DomainSpec
from schemas.model import Stage
from schemas.pipeline import Pipeline
from schemas.protocol import RunPlan
from services.runtime.events import Events, open_events
from services.runtime.program import (
    EXIT_REPORTED,
    EXIT_STOPPED,
    end_with_parent,
    read_arguments,
    ready_mark,
    stages_to_run,
)
from services.runtime.settings import load_settings
from services.runtime.stopping import stop_on_signals
from services.spark_pipeline.progress import ProgressReporter
from services.spark_pipeline.queries import Place, start_query
from services.spark_pipeline.session import counts_state_rows, effective, open_session, spark_conf
from services.spark_pipeline.settings import SparkSettings, forget_secret_variables
from services.spark_pipeline.watching import Failure, watch

NO_DOMAIN = "the run names no domain; it was asked for by an earlier version"


def main() -> int:
    """Run the pipeline until told to stop."""
    pipeline, plan = read_arguments("driver")
    run_id, settings = plan.request.run_id, load_settings(SparkSettings)
    end_with_parent()
    stop = stop_on_signals()
    stages, domain = stages_to_run(pipeline, plan), plan.request.domain
    events = open_events(settings, f"runner-{pipeline.name}")
    if domain is None:
        _say_failed(events, run_id, pipeline, Failure("", NO_DOMAIN))
        events.flush()
        return EXIT_REPORTED
    folder = settings.data.resolve() / "runs" / run_id
    scratch = folder / "scratch" / pipeline.name
    scratch.mkdir(parents=True, exist_ok=True)
    conf = spark_conf(
        pipeline,
        domain,
        stages,
        _partitions(plan),
        settings=settings,
        scratch=scratch,
        warm_up_s=plan.request.workload.phases.warm_up_s,
    )

    forget_secret_variables()
    spark = open_session(pipeline.name, conf, scratch)
    place = Place(settings.kafka_options, _checkpoints(settings, folder, run_id))
    queries = start_queries(spark, pipeline, domain, stages, plan=plan, place=place)

    mark = ready_mark(folder, pipeline.name)

    def say_ready() -> None:
        event = protocol.PIPELINE_UP if mark.exists() else protocol.READY
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        events.lifecycle(event, run_id, pipeline=pipeline.name, detail=effective(spark, conf))

    progress = ProgressReporter(events, run_id, pipeline.name, counts_state_rows(conf))
    failure = watch(queries, stop, say_ready, lambda: progress.report(queries))
    if failure is not None:
        _say_failed(events, run_id, pipeline, failure)
    _close(spark, queries, events, scratch)
    return EXIT_STOPPED if failure is None else EXIT_REPORTED


def start_queries(
    spark: SparkSession,
    pipeline: Pipeline,
    domain: DomainSpec,
    stages: tuple[Stage, ...],
    *,
    plan: RunPlan,
    place: Place,
) -> list[StreamingQuery]:
    """Start one query per stage, side by side: each waits for Kafka's metadata on its own."""

    def start(stage: Stage) -> StreamingQuery:
        return start_query(spark, pipeline, domain, stage, plan=plan, place=place)

    with ThreadPoolExecutor(len(stages)) as starters:
        return list(starters.map(start, stages))


def _checkpoints(settings: SparkSettings, folder: Path, run_id: str) -> str:
    if settings.spark_checkpoints:
        return f"{settings.spark_checkpoints.rstrip('/')}/{run_id}"
    return str(folder / "checkpoints")


def _partitions(plan: RunPlan) -> int:
    return max(len(offsets) for offsets in plan.start_offsets.values())


def _say_failed(events: Events, run_id: str, pipeline: Pipeline, failure: Failure) -> None:
    print(f"{failure.stage}: {failure.reason}", file=sys.stderr, flush=True)
    events.lifecycle(
        protocol.FAILED,
        run_id,
        pipeline=pipeline.name,
        stage=failure.stage,
        detail={"reason": f"{pipeline.name} {failure.stage}: {failure.reason}"},
    )


def _close(
    spark: SparkSession, queries: list[StreamingQuery], events: Events, scratch: Path
) -> None:
    spark.sparkContext.setLogLevel("OFF")  # each task cut short would leave a stack trace
    with ThreadPoolExecutor(len(queries)) as stoppers:
        list(stoppers.map(lambda query: query.stop(), queries))
    spark.stop()
    events.flush()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
