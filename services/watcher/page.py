"""The page of a watch that is exported: HTML without scripts."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from typing import Final

from schemas.protocol import VERDICTS
from schemas.report import Number, Report, WatchReport
from schemas.watch import Watch
from services.watcher.group_lag import TopicLag

SHOWN_LATENCIES: Final = ("p50", "p95", "p99", "max")
PAGE: Final = """<!doctype html><html lang=en><meta charset=utf-8>
<meta http-equiv=refresh content=5><title>{name}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 48rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
caption {{ font-weight: 600; text-align: left }}
th, td {{ border-bottom: 1px solid #ccc; padding: .15rem .8rem .15rem 0; text-align: left }}
.bad {{ color: #b00020 }} .good {{ color: #1b6e2c }}
</style>{body}</html>
"""


def page(
    watch: Watch,
    report: Report | None,
    problem: str,
    lags: Iterable[TopicLag],
    troubles: Iterable[tuple[int, str]],
) -> str:
    """The page of a watch, HTML. report: of the run up to now; None until it has begun. problem:
    why it is not running now; empty if it is. troubles: time and text of the newest, in order."""
    sides = (", ".join(each.topic for each in side) for side in (watch.inputs, watch.outputs))
    parts = [f"<h1>{escape(watch.name)}</h1><p>{escape(' → '.join(sides))}</p>"]
    if problem:
        parts.append(f"<p class=bad>It is not running: {escape(problem)}</p>")
    if report is not None:
        parts += _run_parts(report)
    elif not problem:
        parts.append("<p>It is beginning.</p>")
    behind = [
        (lag.group, lag.topic, *map(_number, (lag.records, lag.behind_s, lag.catch_up_s)))
        for lag in lags
    ]
    if behind:
        heads = ("group", "topic", "records behind", "seconds behind", "caught up in, s")
        parts.append(_table("Consumer groups", heads, behind))
    if rows := [(_time(at_ms), text) for at_ms, text in troubles]:
        parts.append(_table("Problems, the newest first", ("UTC", "problem"), rows[::-1]))
    parts.append("<p><a href=metrics>metrics</a></p>")
    return PAGE.format(name=escape(watch.name), body="\n".join(parts))


def _run_parts(report: Report) -> Iterator[str]:
    (pipeline,) = report.pipelines.values()
    whole = next(iter(pipeline.stages.values()))
    span = report.watch or WatchReport()
    judged = f"from {_time(span.from_ms)} until {_time(span.until_ms)} UTC"
    yield f"<p>Run <code>{escape(report.run_id)}</code>, judged {judged}.</p>"
    if report.valid:
        yield "<p class=good>VALID so far.</p>"
    else:
        reasons = "".join(f"<li>{escape(each)}</li>" for each in report.invalid_reasons)
        yield f"<p class=bad>INVALID:</p><ul class=bad>{reasons}</ul>"
    rates = [
        ("inputs", report.input.records, report.input.records_per_second),
        ("outputs", whole.outputs, whole.records_per_second),
    ]
    rows = [(side, *map(_number, amounts)) for side, *amounts in rates]
    yield _table("Records", ("", "records", "per second"), rows)
    for name, stage in pipeline.stages.items():
        rows = [(verdict, _number(stage.verdicts.get(verdict, 0))) for verdict in VERDICTS]
        yield _table(f"Outputs of {name}", ("verdict", "outputs"), rows)
        rows = [
            (definition, *(_number(latency.of(each)) for each in SHOWN_LATENCIES))
            for definition, latency in stage.latency_ms.items()
        ]
        yield _table(f"Latency of {name}, ms", ("", *SHOWN_LATENCIES), rows)


def _table(title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(each)}" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(each)}" for each in row) for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}{body}</table>"


def _number(value: Number | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}"
