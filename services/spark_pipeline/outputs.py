"""Which rows a stage publishes, from the input topics on, by stage and implementation."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from schemas import catalogue
from schemas.pipeline import Pipeline
from schemas.workload import Windows
from services.spark_pipeline.stages.builtin.join import join as builtin_join
from services.spark_pipeline.stages.builtin.sliding import sliding as builtin_sliding
from services.spark_pipeline.stages.builtin.tumbling import tumbling as builtin_tumbling
from services.spark_pipeline.stages.ingest import ingest
from services.spark_pipeline.stages.join import join
from services.spark_pipeline.stages.parse import parse, parse_or_refuse
from services.spark_pipeline.stages.sliding import sliding
from services.spark_pipeline.stages.state.join import join as join_with_state
from services.spark_pipeline.stages.state.sliding import sliding as sliding_with_state
from services.spark_pipeline.stages.state.tumbling import tumbling as tumbling_with_state
from services.spark_pipeline.stages.tumbling import tumbling
from services.spark_pipeline.wire import encoded

DEFAULT_WINDOWS = Windows()
# Topics → their rows of Kafka as one DataFrame.
Read = Callable[[tuple[str, ...]], DataFrame]

CUSTOMISED: dict[str, Callable[..., DataFrame]] = {
    "join": join,
    "tumbling": tumbling,
    "sliding": sliding,
}
BUILT_IN: dict[str, Callable[..., DataFrame]] = {
    "join": builtin_join,
    "tumbling": builtin_tumbling,
    "sliding": builtin_sliding,
}

STATE: dict[str, Callable[..., DataFrame]] = {
    "join": join_with_state,
    "tumbling": tumbling_with_state,
    "sliding": sliding_with_state,
}


def outputs(
    read: Read,
    stage: str,
    pipeline: Pipeline,
    run_id: str,
    *,
    wire_format: str = "avro",
    windows: Windows = DEFAULT_WINDOWS,
) -> DataFrame:
    """Rows of Kafka → (key, value) that the stage publishes, all the way from the input.

    Rows of stage parse have a column `topic` too: values that are no records go to `dead-letter`,
    once for the pipeline and not for every stage that meets them. run_id: of the run under way;
    wire_format: of the inputs, `avro` or `json`; outputs are Avro. windows: how long
    those of stages 3 and 4 are.
    """
    if stage == "ingest":
        return read(catalogue.INPUTS).transform(ingest)
    if stage == "parse":
        topic = catalogue.output_topic(pipeline.name, stage)
        producer = f"spark_pipeline-{pipeline.name}"
        return parse_or_refuse(read(catalogue.INPUTS), topic, run_id, producer, wire_format)

    def parsed(topics: tuple[str, ...]) -> DataFrame:
        return parse(read(topics), wire_format)

    return encoded(_stateful(parsed, stage, pipeline, lengths(stage, windows)), f"output_{stage}")


def lengths(stage: str, windows: Windows) -> dict[str, int]:
    """The arguments of a stage that say how long its windows are."""
    if stage == "tumbling":
        return {"window_s": windows.tumbling_s}
    if stage == "sliding":
        return {"window_s": windows.sliding_s, "slide_s": windows.tumbling_s}
    return {}


def _stateful(parsed: Read, stage: str, pipeline: Pipeline, window: dict[str, int]) -> DataFrame:
    if pipeline.implementation == "built-in":
        delay_ms = pipeline.window_watermark_ms
        if stage == "join":
            delay_ms = 1000 * pipeline.watermark_s
        flows, speeds = (_observations(parsed, (topic,), delay_ms) for topic in catalogue.INPUTS)
        return BUILT_IN[stage](flows, speeds, **window)
    if pipeline.implementation == "state":
        return STATE[stage](parsed(catalogue.INPUTS), pipeline.watermark_s, **window)
    observations = _observations(parsed, catalogue.INPUTS, 1000 * pipeline.watermark_s)
    return CUSTOMISED[stage](observations, **window)


def _observations(parsed: Read, topics: tuple[str, ...], watermark_ms: int) -> DataFrame:
    return parsed(topics).withWatermark("observed_at", f"{watermark_ms} milliseconds")
