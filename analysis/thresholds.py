"""Judges the figures of a run by thresholds. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from analysis.described import plain
from schemas.protocol import FAILED_VERDICTS
from schemas.report import (
    Figures,
    GroupLag,
    Input,
    Number,
    PipelineReport,
    Report,
    ReportPart,
    RunOutcome,
    StageReport,
    ThresholdResult,
)
from schemas.threshold import (
    EVERY_STAGE,
    GROUP,
    INPUT,
    LAG_SECONDS,
    LATENCY_FIGURES,
    PIPELINE,
    Threshold,
    parse_threshold,
)

BYTES_PER_MB = 1e6
ENDED = "The run was ended by a threshold"


def judged(thresholds: Iterable[Threshold], figures: Figures) -> list[ThresholdResult]:
    """One row per threshold and matching pipeline and stage. A threshold without a match has a row
    that has not passed."""
    rows = []
    for threshold in thresholds:
        if threshold.of_baseline:
            rows.append(_row(threshold, threshold.pipeline, threshold.subject, None))
            continue
        result = list(values_of(threshold, figures)) or [
            (threshold.pipeline, threshold.subject, None)
        ]
        rows += [_row(threshold, *each) for each in result]
    return rows


def _row(threshold: Threshold, pipeline: str, stage: str, value: Number | None) -> ThresholdResult:
    return ThresholdResult(
        threshold=threshold.text,
        pipeline=pipeline,
        stage=stage,
        value=value,
        limit=threshold.value,
        passed=threshold.holds(value),
    )


def resolved(
    thresholds: Iterable[Threshold],
    baseline: Figures | None,
    name: str,
    measured: Mapping[str, Collection[str]],
    apart: Collection[str] = (),
) -> tuple[Threshold, ...]:
    """Thresholds with numbers in place of a baseline's figures: one per pipeline and stage.

    baseline: the figures of a run, `name` its origin; None without one. measured: the stages of
    each pipeline of the next run; what only the baseline has is left out, and what it lacks fails.
    The only pipeline of a baseline applies to the only one of a run. apart: why the baseline is not
    comparable: then its figures limit nothing, and these thresholds fail. Raises ValueError.
    """

    def is_measured(pipeline: str, stage: str) -> bool:
        return not pipeline or (pipeline in measured and stage in ("", *measured[pipeline]))

    result: list[Threshold] = []
    for threshold in thresholds:
        if not threshold.of_baseline:
            result.append(threshold)
            continue
        if baseline is None:
            raise ValueError(
                f"{threshold.text!r} needs a baseline: --baseline FILE.json or a run id"
            )
        if apart:
            result.append(
                threshold.without_baseline(f"{name} is not comparable: {'; '.join(apart)}")
            )
            continue
        figures = baseline
        if len(measured) == len(baseline.pipelines) == 1:
            pipelines = dict(zip(measured, baseline.pipelines.values(), strict=True))
            figures = baseline.model_copy(update={"pipelines": pipelines})
        known = [
            each
            for each in values_of(threshold, figures)
            if each[2] is not None and is_measured(*each[:2])
        ]
        if not known:
            raise ValueError(f"{name} has no figure for {threshold.text!r}")
        for pipeline, stage, value in known:
            assert value is not None
            result.append(threshold.narrowed(pipeline, stage).against(value, name))
        has_figure = {each[:2] for each in known}
        for pipeline, stage in _limited(threshold, measured):
            if (pipeline, stage) not in has_figure:
                who = " ".join(filter(None, (pipeline, stage)))
                narrowed = threshold.narrowed(pipeline, stage)
                result.append(narrowed.without_baseline(f"{name} has no such figure of {who}"))
    return tuple(result)


def _limited(
    threshold: Threshold, measured: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str]]:
    """The measured pipelines and stages that a threshold limits."""
    for pipeline, stages in measured.items():
        if threshold.pipeline in ("", pipeline) and threshold.subject == PIPELINE:
            yield pipeline, ""
        elif threshold.pipeline in ("", pipeline):
            yield from ((pipeline, each) for each in stages if _is_of(threshold, each))


def _is_of(threshold: Threshold, stage: str) -> bool:
    return threshold.subject in (EVERY_STAGE, stage)


def values_of(threshold: Threshold, figures: Figures) -> Iterator[tuple[str, str, Number | None]]:
    """Pipeline, stage and value of everything that matches a threshold. A consumer group is in the
    place of a stage, as `group NAME`."""
    if threshold.subject == INPUT:
        yield "", "", _of_input(figures.input, threshold.figure)
        return
    if threshold.is_of_groups:
        for group in dict.fromkeys(each.group for each in figures.groups):
            lags = [each for each in figures.groups if each.group == group]
            yield "", f"{GROUP} {group}", _of_group(lags, threshold.figure)
        return
    for name, pipeline in figures.pipelines.items():
        if threshold.pipeline not in ("", name):
            continue
        if threshold.subject == PIPELINE:
            value = (
                figures.sustainable_rate
                if threshold.needs_search
                else _of_pipeline(pipeline, threshold.figure)
            )
            yield name, "", value
            continue
        for stage, cell in pipeline.stages.items():
            if _is_of(threshold, stage):
                yield name, stage, _of_stage(cell, threshold)


def judged_search(
    thresholds: Iterable[Threshold], pipeline: str, rate_per_second: Number | None
) -> list[ThresholdResult]:
    """As `judged`, for those that limit the rate found by a search."""
    figures = Figures(pipelines={pipeline: PipelineReport()}, sustainable_rate=rate_per_second)
    return judged((threshold for threshold in thresholds if threshold.needs_search), figures)


def judged_early(thresholds: Iterable[Threshold], figures: Figures) -> list[ThresholdResult]:
    """As `judged`, for a run that a threshold ended: without those whose figures are known only at
    the end, such as rates, or not at all."""
    known = (threshold for threshold in thresholds if threshold.is_known_early)
    return [row for row in judged(known, figures) if row.value is not None]


def ended_by_threshold(report: Report) -> bool:
    """Whether a run is not valid only because a threshold ended it early."""
    return any(reason.startswith(ENDED) for reason in report.invalid_reasons)


def left_to_thresholds(rows: Iterable[ThresholdResult]) -> frozenset[str]:
    """Verdicts that a watch limits by a threshold, so that fewer are no problem. rows: the judged
    thresholds of a run."""
    figures = {parse_threshold(row.threshold).figure for row in rows}
    if "not_exact" in figures:
        return frozenset(FAILED_VERDICTS)
    return frozenset(figures & {*FAILED_VERDICTS})


def not_exact(verdicts: Mapping[str, Number], limited: Collection[str] = ()) -> str:
    """The outputs of a stage with other verdicts than exact: `3 missing, 2 late`; empty without
    any. limited: verdicts that do not count."""
    names = (each for each in FAILED_VERDICTS if each not in limited)
    return ", ".join(f"{verdicts[name]} {name}" for name in names if verdicts.get(name))


def outcome(report: Report) -> RunOutcome:
    """The report as one of several runs, without doubts."""
    failed = [row for row in report.thresholds if not row.passed]
    return RunOutcome(
        run_id=report.run_id,
        valid=report.valid,
        invalid_reasons=report.invalid_reasons,
        clean=report.conclusion.clean,
        failed_thresholds=[f"Threshold {sentence(row)}." for row in failed],
    )


def sentence(row: ThresholdResult) -> str:
    """`failed: join.p99_ms <= 50; spark-realtime join has 63`."""
    who = " ".join(filter(None, (row.pipeline, row.stage))) or INPUT
    value = row.reason if row.value is None else f"has {plain(row.value, digits=4)}"
    return f"{'passed' if row.passed else 'failed'}: {row.threshold}; {who} {value}"


def _of_input(source: Input, figure: str) -> Number | None:
    if figure.startswith("send_delay_"):
        name = figure.removeprefix("send_delay_").removesuffix("_ms")
        return _number(source.send_delay_ms, name)
    return _number(source, figure)


def _of_group(lags: Iterable[GroupLag], figure: str) -> Number | None:
    """The most that a group was behind in any of its topics."""
    most = [each.max_s if figure == LAG_SECONDS else each.max for each in lags]
    return max((each for each in most if each is not None), default=None)


def _of_pipeline(pipeline: PipelineReport, figure: str) -> Number | None:
    used = pipeline.resources
    if figure == "lag_records":
        return pipeline.lag_records.max if pipeline.lag_records else None
    if figure == "memory_mb":
        return _megabytes(used.memory_bytes_max)
    if figure == "heap_mb":
        return _megabytes(used.heap_used_bytes_max)
    return _number(used, figure)


def _megabytes(size_bytes: Number | None) -> Number | None:
    return None if size_bytes is None else size_bytes / BYTES_PER_MB


def _of_stage(cell: StageReport, threshold: Threshold) -> Number | None:
    if threshold.figure in LATENCY_FIGURES:
        latency = cell.latency_ms.get(threshold.definition)
        return latency.of(threshold.figure.removesuffix("_ms")) if latency else None
    if threshold.figure == "not_exact":
        return sum(cell.verdicts[name] for name in FAILED_VERDICTS) if cell.verdicts else None
    if threshold.figure in cell.verdicts:
        return cell.verdicts[threshold.figure]
    return _number(cell, threshold.figure)


def _number(part: ReportPart, name: str) -> Number | None:
    """A figure by its name; None if the part has no such figure."""
    value = getattr(part, name, None)
    return value if isinstance(value, int | float) else None
