"""Composes the output rows of a stage from its input topics, by kind and implementation.

A domain may compute stages itself: `spark.py` in its folder has a function for each.

    def revenue(rows: DataFrame, stage: StageSpec) -> DataFrame: ...

It receives the decoded records of the stage's inputs, with a watermark and the column `_input`, the
name of a row's input, and returns rows with the columns of the stage's record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import dropwhile
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from schemas import catalogue
from schemas.domain import ROW_KINDS, WINDOW_START, DomainSpec, StageSpec
from schemas.validation_errors import DefinitionError
from services.definitions.domains import domain_module
from services.definitions.trusted import trusted_domain
from services.spark_pipeline.settings import SparkPipeline
from services.spark_pipeline.stages.built_in import WINDOW_TIME, window_join
from services.spark_pipeline.stages.built_in import aggregate as builtin_aggregate
from services.spark_pipeline.stages.built_in import change as builtin_change
from services.spark_pipeline.stages.built_in import join as builtin_join
from services.spark_pipeline.stages.customised import aggregate, change, change_of_windows, join
from services.spark_pipeline.stages.rows import (
    Inputs,
    copy,
    decode_or_refuse,
    filtered,
    looked_up,
    published,
    records,
)
from services.spark_pipeline.stages.with_state import aggregate as aggregate_with_state
from services.spark_pipeline.stages.with_state import change as change_with_state
from services.spark_pipeline.stages.with_state import join as join_with_state
from services.spark_pipeline.wire import encoded

MODULE = "spark"
Own = Mapping[str, Callable[[DataFrame, StageSpec], DataFrame]]
# Topics → their Kafka rows as one DataFrame.
Read = Callable[[tuple[str, ...]], DataFrame]
Kinds = Mapping[str, Callable[..., DataFrame]]
CUSTOMISED: Kinds = {"join": join, "aggregate": aggregate, "change": change}
STATE: Kinds = {
    "join": join_with_state,
    "aggregate": aggregate_with_state,
    "change": change_with_state,
}
BUILT_IN_JOINS: Kinds = {"join": builtin_join, "window_join": window_join}
OF_ROWS: Kinds = {"filter": filtered, "lookup": looked_up}


def own_functions(domain: DomainSpec, data: Path) -> Own:
    """The stage functions in the folder of this machine that defines the domain, by stage.

    Raises DefinitionError without such a folder or a usable function.
    """
    result = trusted_domain(domain, data)
    path = result.folder / f"{MODULE}.py"
    module = domain_module(result, MODULE)
    if module is None:
        raise DefinitionError(f"{path} does not exist, and implementation is own.")
    # Spark workers cannot import the module, so its functions are pickled by value.
    cloudpickle.register_pickle_by_value(module)
    named = {name: getattr(module, name, None) for name in domain.stage_names}
    functions = {name: each for name, each in named.items() if callable(each)}
    if not functions:
        stages = ", ".join(domain.stage_names)
        raise DefinitionError(f"{path} has no function that is named after a stage: {stages}.")
    for name in functions:
        kind = domain.stage(name).kind
        if kind in ("copy", "decode"):
            raise DefinitionError(f"{path}: a {kind} such as {name} cannot be replaced.")
    return functions


@dataclass(frozen=True)
class StageSource:
    """Shared by all stages of a run: the topic reader, the topic of undecodable values, the wire
    format of the inputs (`avro` or `json`; outputs are Avro), and the domain's own functions."""

    read: Read
    undecodable_topic: str
    wire_format: str = "avro"
    own: Own = field(default_factory=dict)


def outputs(
    source: StageSource, domain: DomainSpec, stage: str, pipeline: SparkPipeline
) -> DataFrame:
    """(key, value) of a stage's outputs, computed from the inputs.

    With topology `via-topics`, from the output topic of the stage that it reads, if any. Rows of a
    decode also have a column `topic`: undecodable values go to another, once per pipeline and not
    per stage. Raises ValueError if the implementation does not support the stage.
    """
    spec, inputs = domain.stage(stage), Inputs.of(domain, stage)
    before = stage_before(domain, spec, pipeline)
    topics = (catalogue.output_topic(pipeline.name, before.name),) if before else inputs.topics
    is_copied = before is not None and before.kind == "copy"
    if spec.kind == "copy":
        return source.read(topics).transform(copy)
    if spec.kind == "decode" and (before is None or is_copied):
        return decode_or_refuse(
            source.read(topics),
            spec,
            inputs,
            output_topic=catalogue.output_topic(pipeline.name, stage),
            undecodable_topic=source.undecodable_topic,
            wire_format=source.wire_format,
            is_copied=is_copied,
        )
    if before is None:
        frame = _computed(source, inputs, spec, pipeline)
    elif is_copied:
        rows = records(source.read(topics), inputs, source.wire_format, is_copied=True)
        frame = one_stage(rows, spec, inputs, pipeline)
    else:
        rows = published(source.read(topics), before, inputs)
        _check_inputs_are_told(rows, spec, before, inputs)
        frame = one_stage(rows, spec, inputs, pipeline)
    return encoded(frame, spec, domain.codec)


def stage_before(domain: DomainSpec, spec: StageSpec, pipeline: SparkPipeline) -> StageSpec | None:
    """The stage whose output topic a stage reads; None if it reads inputs."""
    if pipeline.topology != "via-topics" or spec.reads[0] not in domain.stage_names:
        return None
    return domain.stage(spec.reads[0])


def _check_inputs_are_told(
    rows: DataFrame, spec: StageSpec, before: StageSpec, inputs: Inputs
) -> None:
    """Raise ValueError if a stage needs the input of each row and the stage before drops it."""
    if spec.kind not in ("join", "aggregate") or len(inputs.names) == 1:
        return
    untold = [name for name in inputs.names if inputs.own_column(name) not in rows.columns]
    if untold:
        raise ValueError(
            f"{spec.name} needs the input of each record, but outputs of {before.name} do not "
            f"identify those of {untold[0]}"
        )


def one_stage(
    rows: DataFrame, spec: StageSpec, inputs: Inputs, pipeline: SparkPipeline
) -> DataFrame:
    """The rows that a stage reads → its own. Raises ValueError for an unsupported stage."""
    if spec.kind in ROW_KINDS:
        return of_rows(rows, (spec,))
    keep = f"{pipeline.watermark_s} seconds"
    if spec.needs == "change counted":
        return change_of_windows(rows.withWatermark(WINDOW_START, keep), spec)
    if spec.needs in ("join", "aggregate counted"):
        return CUSTOMISED[spec.kind](rows.withWatermark(inputs.event_time, keep), spec, inputs)
    raise ValueError(f"the stage {spec.name} needs {spec.needs}, which only built-in has")


def _computed(
    source: StageSource, inputs: Inputs, spec: StageSpec, pipeline: SparkPipeline
) -> DataFrame:
    """The outputs of a stage, with at least the columns of its record."""
    chain, steps = inputs.domain.chain(spec.name), stateful_steps(inputs.domain, spec.name)
    before = chain[: len(chain) - len(steps)]

    def rows(of: Inputs) -> DataFrame:
        return records(source.read(of.topics), of, source.wire_format)

    def watermarked(of: Inputs, delay_ms: int) -> DataFrame:
        return rows(of).withWatermark(inputs.event_time, f"{delay_ms} milliseconds")

    def by_input(delay_ms: int) -> dict[str, DataFrame]:
        return {each.name: watermarked(inputs.only(each), delay_ms) for each in inputs.specs}

    if spec.name in source.own:
        if pipeline.closes_windows:
            result = _together(by_input(pipeline.window_watermark_ms))
        else:
            result = watermarked(inputs, 1000 * pipeline.watermark_s)
        return source.own[spec.name](result, spec)
    if not steps:
        return of_rows(rows(inputs), before)
    if pipeline.closes_windows:
        frames = by_input(built_in_watermark_ms(steps, pipeline))
        frames = {name: of_rows(frame, before) for name, frame in frames.items()}
        return built_in(frames, steps, inputs)
    if pipeline.implementation == "state":
        result, kinds = rows(inputs), _with(STATE, pipeline.watermark_s)
    else:
        result, kinds = watermarked(inputs, 1000 * pipeline.watermark_s), CUSTOMISED
    return once_stateful(of_rows(result, before), steps, inputs, kinds)


def _together(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of all inputs, each with its watermark."""
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames.values())


def _with(kinds: Kinds, keep_s: int) -> Kinds:
    return {kind: partial(function, keep_s=keep_s) for kind, function in kinds.items()}


def stateful_steps(domain: DomainSpec, stage: str) -> tuple[StageSpec, ...]:
    """The steps of a stage from the first stateful one on."""
    return tuple(dropwhile(lambda step: step.kind in ROW_KINDS, domain.chain(stage)))


def of_rows(rows: DataFrame, steps: Sequence[StageSpec]) -> DataFrame:
    """Apply filters and lookups; copy and decode leave rows unchanged."""
    return reduce(
        lambda frame, step: OF_ROWS[step.kind](frame, step) if step.kind in OF_ROWS else frame,
        steps,
        rows,
    )


def once_stateful(
    rows: DataFrame, steps: Sequence[StageSpec], inputs: Inputs, kinds: Kinds
) -> DataFrame:
    """Input rows → outputs of the last of these stages, with one state for all of them. Raises
    ValueError if that is not supported."""
    stateful = [step for step in steps if step.kind not in ROW_KINDS]
    after = steps[len(stateful) :]
    spec = stateful[-1]
    shape = [step.needs for step in steps[: len(stateful)]]
    if shape == ["aggregate counted", "change counted"]:
        frame = kinds["change"](rows, spec, stateful[0], inputs)
    elif shape in (["join"], ["aggregate counted"]):
        frame = kinds[spec.kind](rows, spec, inputs)
    else:
        raise ValueError(
            f"the stage {steps[-1].name} needs {', '.join(shape)}, which only built-in has"
        )
    return of_rows(frame, after)


def built_in(
    frames: Mapping[str, DataFrame], steps: Sequence[StageSpec], inputs: Inputs
) -> DataFrame:
    """Rows of each input → outputs of the last of these stages, with one operator per stage."""
    first, *others = steps
    if first.kind in BUILT_IN_JOINS:
        rows = BUILT_IN_JOINS[first.kind](frames, first, inputs)
    else:
        rows = builtin_aggregate(_together(frames), first, inputs, inputs.event_time)
    for step in others:
        if step.kind == "aggregate":
            is_windowed = WINDOW_TIME in rows.columns
            event_time = WINDOW_TIME if is_windowed else inputs.joined_time
            rows = builtin_aggregate(rows, step, inputs, event_time)
        elif step.kind == "change":
            rows = builtin_change(rows, step)
        elif step.kind in OF_ROWS:
            rows = OF_ROWS[step.kind](rows, step)
        else:
            raise ValueError(f"the stage {step.name} joins what a stateful stage publishes")
    return rows


def built_in_watermark_ms(steps: Sequence[StageSpec], pipeline: SparkPipeline) -> int:
    """Watermark delay: `window_watermark_ms` for windows, which wait for it; `watermark_s` for a
    join, whose state it bounds."""
    closes = any(step.kind in ("aggregate", "change") for step in steps)
    return pipeline.window_watermark_ms if closes else 1000 * pipeline.watermark_s
