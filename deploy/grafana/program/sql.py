"""Query fragments of several dashboards. Every query is limited to the time range."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from schemas.percentiles import LEVELS, shown
from schemas.protocol import FAILED_VERDICTS

# Filter by a variable; `All` matches everything.
CHOSEN_PIPELINES: Final = "$__conditionalAll(pipeline IN (${pipelines:sqlstring}), $pipelines)"

# Ranges of six hours and more use the sums per minute, which have some twenty times fewer rows and
# outlive the raw rows. The unused half reads nothing: its condition is constantly false.
LATENCIES: Final = """
(
    SELECT run_id, pipeline, stage, definition, phase, second AS at, latency_ms, count
    FROM results_latency
    WHERE $__toTime - $__fromTime < 21600 AND $__timeFilter(second)
    UNION ALL
    SELECT run_id, pipeline, stage, definition, phase, minute AS at, latency_ms, count
    FROM latency_minutes
    WHERE $__toTime - $__fromTime >= 21600 AND $__timeFilter(minute)
) AS counted
""".strip()


def stage_order(column: str = "stage") -> str:
    """The index of a stage in its domain, from the newest run."""
    positions = "mapFromArrays(groupArray(toString(s.stage)), groupArray(s.position))"
    return f"(SELECT {positions} FROM stage_positions AS s)[toString({column})]"


# Of `runs`: a run that was refused, so it has no phase and no conclusion.
REFUSED: Final = (
    "(NOT concluded AND phase = ''"
    " AND run_id IN (SELECT run_id FROM results_lifecycle WHERE event = 'run_refused'))"
)
# Runs that took place in the time range, including current ones, and runs refused in it.
RUNS_OF_RANGE: Final = (
    "requested_at <= $__toTime"
    f" AND if(concluded OR {REFUSED}, ifNull(concluded_at, requested_at) >= $__fromTime, true)"
)
# Runs of pipelines that were measured alternately, each with its own part of the input.
INTERLEAVED: Final = """(
    SELECT run_id FROM results_lifecycle
    WHERE event = 'run_requested' AND JSONType(detail, 'interleaved') = 'Object'
)"""

# Runs and pipelines whose outputs need not be exact: the run kills a part, or the pipeline plants
# faults by settings such as `drop_one_in` (services/conductor/notices/notice.py).
PLANNED_FAULTS: Final = """
    SELECT run_id, JSONExtractString(asked, 'name') AS name
    FROM results_lifecycle
    ARRAY JOIN JSONExtractArrayRaw(detail, 'pipelines') AS asked
    WHERE event = 'run_requested' AND (
        JSONLength(detail, 'workload', 'kills') > 0
        OR arrayExists(
            setting -> endsWith(setting.1, '_one_in') AND setting.2 NOT IN ('0', 'null'),
            JSONExtractKeysAndValuesRaw(asked)
        )
    )
""".strip()
# The figure that a threshold limits.
FIGURE: Final = "([a-z0-9_]+) *[<>=!]"
# Runs of watches without any output, or with exact ones, whose other verdicts are all limited by
# thresholds (services/console/report/words.py). A watch has one pipeline and one stage.
LEFT_TO_THRESHOLDS: Final = f"""
    SELECT run_id
    FROM
    (
        SELECT
            run_id,
            JSONExtractKeysAndValuesRaw(
                JSONExtractKeysAndValuesRaw(detail, 'verdicts')[1].2
            )[1].2 AS counted,
            JSONExtract(counted, 'Map(String, UInt64)') AS counts,
            arrayMap(
                row -> extract(JSONExtractString(row, 'threshold'), '{FIGURE}'),
                JSONExtractArrayRaw(detail, 'thresholds')
            ) AS figures
        FROM results_conclusions
        WHERE kind = 'run' AND startsWith(run_id, 'watch-')
            AND JSONExtractUInt(detail, 'watch', 'refused') = 0
    )
    WHERE arraySum(mapValues(counts)) = 0 OR counts['exact'] > 0 AND (
        has(figures, 'not_exact')
        OR NOT arrayExists(
            verdict -> counts[verdict] > 0 AND NOT has(figures, verdict),
            [{", ".join(f"'{name}'" for name in FAILED_VERDICTS)}]
        )
    )
""".strip()
# Runs whose workload sends records that cannot be decoded; their dead letters are no problem.
PLANTED_UNDECODABLE: Final = """
    SELECT run_id FROM results_lifecycle
    WHERE event = 'run_requested'
        AND JSONExtractFloat(detail, 'workload', 'faults', 'undecodable') > 0
""".strip()
# Of `runs`.
IS_EXACT: Final = (
    f"(clean OR run_id IN (SELECT run_id FROM ({PLANNED_FAULTS}))"
    f" OR run_id IN ({LEFT_TO_THRESHOLDS}))"
)

PIPELINE_VALUES: Final = """
SELECT toString(pipeline) AS value
FROM results_throughput
WHERE pipeline != '' AND $__timeFilter(second)
GROUP BY value
ORDER BY uniq(stage) DESC, value
"""
STAGE_VALUES: Final = f"""
SELECT toString(stage) AS value
FROM results_throughput
WHERE stage != '' AND $__timeFilter(second)
GROUP BY value
ORDER BY {stage_order("value")}, value
"""
# Stages of the selected pipeline; a join first, if there is one.
STAGE_OF_PIPELINE_VALUES: Final = f"""
SELECT toString(stage) AS value
FROM results_throughput
WHERE pipeline = ${{pipeline:sqlstring}} AND $__timeFilter(second)
GROUP BY value
ORDER BY
    value NOT IN (SELECT stage FROM run_stages WHERE kind IN ('join', 'window_join')),
    {stage_order("value")}
"""


def exact(share: float) -> str:
    """The nearest-rank percentile of the counts, milliseconds."""
    return f"quantileExactWeighted({share})(latency_ms, count)"


def unplanned(in_range: str) -> str:
    """Condition of `results_verdicts`: outputs that should be exact. in_range: condition of its
    rows in the time range, to limit the requests that are read."""
    of_range = f"SELECT run_id FROM results_verdicts AS w WHERE {in_range}"
    return f"(run_id, pipeline) NOT IN (\n    {PLANNED_FAULTS}\n    AND run_id IN ({of_range})\n)"


def limited(in_range: str) -> str:
    """Runs of watches and verdicts that a threshold limits, so that fewer are no problem
    (services/conductor/notices/notice.py). in_range: as in `unplanned`."""
    names = ", ".join(f"'{name}'" for name in FAILED_VERDICTS)
    return f"""
    SELECT run_id, arrayJoin(if(figure = 'not_exact', [{names}], [figure])) AS verdict
    FROM
    (
        SELECT
            run_id,
            extract(
                arrayJoin(JSONExtract(detail, 'watch', 'thresholds', 'Array(String)')),
                '{FIGURE}'
            ) AS figure
        FROM results_lifecycle
        WHERE event = 'watch_begun'
            AND run_id IN (SELECT run_id FROM results_verdicts AS w WHERE {in_range})
    )
""".strip()


def limits(share: float, runs: str) -> str:
    """The upper limits of a percentile in the thresholds of runs (schemas/threshold.py): of_run and
    its workload, of_pipeline (empty: every one), of_stage (`*`: every one), of_definition, limit_ms
    and limit_name, for a line. From the requests, so that they are known while a run is going on.
    runs: a query for run ids."""
    space, number = "[[:space:]]*", "-?[0-9]+(?:[.][0-9]+)?"
    pattern = (
        f"^{space}(?:([a-z0-9-]+){space}:{space})?(?:([*]|[a-z0-9_]+)[.])?(?:([a-z_]+)[.])?"
        f"p{100 * share:g}_ms{space}<=?{space}({number}){space}(?:abort{space})?(?:#.*)?$"
    )
    return f"""
(
    SELECT
        of_run,
        workload,
        found[1] AS of_pipeline,
        if(found[2] = '', '*', found[2]) AS of_stage,
        if(found[3] = '', 'latest', found[3]) AS of_definition,
        toFloat64(found[4]) AS limit_ms,
        arrayStringConcat(
            arrayFilter(
                word -> word != '',
                ['limit', workload, of_pipeline, if(of_stage = '*', 'all stages', of_stage)]
            ), ' '
        ) AS limit_name
    FROM
    (
        SELECT
            run_id AS of_run,
            JSONExtractString(detail, 'workload', 'name') AS workload,
            extractGroups(line, '{pattern}') AS found
        FROM results_lifecycle
        ARRAY JOIN arrayConcat(
            JSONExtract(detail, 'workload', 'thresholds', 'Array(String)'),
            JSONExtract(detail, 'watch', 'thresholds', 'Array(String)')
        ) AS line
        WHERE event IN ('run_requested', 'watch_begun') AND run_id IN ({runs})
    )
    WHERE notEmpty(found)
)
""".strip()


PERCENTILES: Final = f"""
    {exact(0.5)} AS p50,
    {exact(0.9)} AS p90,
    {exact(0.99)} AS p99,
    {exact(0.999)} AS "p99.9",
    max(latency_ms) AS max
""".strip()


# The same where there is room for all, and their names.
ALL_NAMES: Final = ", ".join([*(f'"{shown(name)}"' for name in LEVELS), "max"])
ALL_PERCENTILES: Final = "\n        ".join(
    [
        *(f'{exact(level)} AS "{shown(name)}",' for name, level in LEVELS.items()),
        "max(latency_ms) AS max",
    ]
)


def verdict_sums(verdicts: Iterable[str]) -> str:
    """Columns of `results_verdicts AS v`: number of outputs with each verdict."""
    return ",\n    ".join(f"sum(v.{name}) AS {name}" for name in verdicts)


def verdict_rates(verdicts: Iterable[str]) -> str:
    """The same per second."""
    return ",\n    ".join(f"sum(v.{name}) / $__interval_s AS {name}" for name in verdicts)


# Upper bounds of the bands of heatmaps and distributions, milliseconds.
BOUNDS_MS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def bands() -> list[tuple[str, str]]:
    """(name, condition) of latency bands in ascending order; every value is in one."""
    result = [("< 0", f"latency_ms < {BOUNDS_MS[0]}"), ("0", "latency_ms = 0")]
    for low, high in pairwise(BOUNDS_MS):
        name = str(high) if high - low == 1 else f"{low + 1}-{high}"
        result.append((name, f"latency_ms > {low} AND latency_ms <= {high}"))
    return [*result, (f"> {BOUNDS_MS[-1]}", f"latency_ms > {BOUNDS_MS[-1]}")]


def band_columns() -> str:
    """Columns of a heatmap: the outputs in each band."""
    named = (f'sumIf(count, {condition}) AS "{name} ms"' for name, condition in bands())
    return ",\n    ".join(named)
