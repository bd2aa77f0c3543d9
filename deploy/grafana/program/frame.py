"""Common settings of all dashboards: data source variable, annotations, links and refresh."""

from collections.abc import Iterable
from typing import Final

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.program import panels
from deploy.grafana.program.panels import DATASOURCE, PLUGIN, TABLE, TargetQuery
from schemas.protocol import DEFINITIONS

TAG: Final = "tidegauge"
ALL: Final = model.VariableOption(selected=True, text=["All"], value=["$__all"])

WATCHED: Final = "startsWith(run_id, 'watch-')"
# Of several runs: in half an hour all phases are shown, in two hours only those that are measured,
# and then none, because nothing else could be seen.
OF_RUNS: Final = (
    f"NOT {WATCHED} AND ($__toTime - $__fromTime <= 1800"
    " OR phase = 'measure' AND $__toTime - $__fromTime <= 7200)"
)
# A deployment is shown at the first run with a version different from the run before.
DEPLOYMENTS: Final = """
SELECT time, concat('Changed to ', now_on, '; previously ', before) AS text, 'deployment' AS tags
FROM
(
    SELECT
        time,
        concat(
            'Tidegauge ', JSONExtractString(detail, 'environment', 'tidegauge'),
            ', packages ', JSONExtractRaw(detail, 'environment', 'packages'),
            ', ', JSONExtractString(detail, 'environment', 'broker'),
            ', ', JSONExtractString(detail, 'environment', 'java')
        ) AS now_on,
        lagInFrame(now_on) OVER (
            ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS before
    FROM results_lifecycle
    WHERE event = 'run_requested'
)
WHERE before != '' AND now_on != before AND $__timeFilter(time)
ORDER BY time
LIMIT 200
"""
# Shown at the first run after the change, which is found some runs later.
CHANGES: Final = """
SELECT
    ifNull(k.measure_at, c.time) AS time,
    concat(
        JSONExtractString(detail, 'metric'), ' of ', JSONExtractString(detail, 'pipeline'), ' ',
        JSONExtractString(detail, 'stage'), ' changed at run ', c.run_id
    ) AS text,
    'change point' AS tags
FROM results_conclusions AS c
LEFT JOIN (SELECT run_id, measure_at FROM runs) AS k ON k.run_id = c.run_id
WHERE kind = 'change_point' AND $__timeFilter(ifNull(k.measure_at, c.time))
ORDER BY time
LIMIT 200
"""


def phases(which: str) -> dash.AnnotationQuery:
    """Phases of runs. which: SQL condition. A phase lasts until the next event of its run or,
    without one, to the end of the range."""
    sql = f"""
SELECT time, if(next < time, $__toTime, next) AS timeEnd, text, tags
FROM
(
    SELECT
        time,
        any(time) OVER (
            PARTITION BY run_id ORDER BY time ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING
        ) AS next,
        concat(phase, ' of ', run_id) AS text,
        'phase' AS tags,
        event,
        run_id,
        phase
    FROM results_lifecycle
    WHERE event IN ('phase_started', 'concluded')
        AND time >= $__fromTime - 86400 AND time <= $__toTime
)
WHERE event = 'phase_started' AND timeEnd >= $__fromTime AND {which}
ORDER BY time
LIMIT 1000
"""
    return annotation("Run phases", sql, panels.SKY)


def faults(which: str = "true") -> dash.AnnotationQuery:
    """Faults of runs. which: SQL condition."""
    sql = f"""
SELECT
    time,
    concat(
        replaceOne(toString(event), '_', ' '), if(pipeline = '', '', ' '), pipeline, ' ',
        JSONExtractString(detail, 'reason')
    ) AS text,
    'fault' AS tags
FROM results_lifecycle
WHERE event IN ('pipeline_down', 'pipeline_up', 'failed', 'run_refused') AND $__timeFilter(time)
    AND {which}
ORDER BY time
LIMIT 1000
"""
    return annotation("Faults", sql, panels.VERMILION)


def frame(
    name: str,
    title: str,
    description: str,
    variables: Iterable[dash.QueryVariable | dash.CustomVariable] = (),
    *,
    since: str = "now-15m",
    refresh: str = "10s",
    tags: Iterable[str] = (),
    events: Iterable[dash.AnnotationQuery] | None = None,
) -> dash.Dashboard:
    """A dashboard without panels; its uid is `tidegauge-<name>`. tags: beside TAG. events:
    annotations other than deployments and change points; by default phases and faults of all
    runs."""
    result = (
        dash.Dashboard(title)
        .uid(f"tidegauge-{name}")
        .description(description)
        .tags([TAG, *tags])
        .time(since, "now")
        .timezone("browser")
        .refresh(refresh)
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_links())
        .with_variable(
            dash.DatasourceVariable("datasource")
            .label("Data source")
            .description("ClickHouse database with the results")
            .type(PLUGIN)
        )
    )
    if events is None:
        events = (phases(OF_RUNS), faults())
    for event in (
        *events,
        annotation("Deployments", DEPLOYMENTS, panels.PURPLE),
        annotation("Change points", CHANGES, panels.ORANGE),
    ):
        result = result.annotation(event)
    for variable in variables:
        result = result.with_variable(variable)
    return result


def placed(dashboard: dash.Dashboard, *panels: Builder[model.Panel]) -> dash.Dashboard:
    """Add panels, side by side up to the width of 24."""
    for panel in panels:
        dashboard = dashboard.with_panel(panel)
    return dashboard


def asked(name: str, label: str, description: str, sql: str, several: bool) -> dash.QueryVariable:
    """A variable with values from a query; with `several`, multiple values, initially all."""
    variable = (
        dash.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(DATASOURCE)
        .query(dict(TargetQuery(sql, TABLE, f"variable-{name}").build().data))
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.DISABLED)
    )
    return variable.multi(True).include_all(True).current(ALL) if several else variable


def listed(name: str, label: str, description: str, values: tuple[str, ...]) -> dash.CustomVariable:
    """A variable with fixed values, initially the first."""
    first = model.VariableOption(selected=True, text=values[0], value=values[0])
    return (
        dash.CustomVariable(name)
        .label(label)
        .description(description)
        .values(", ".join(values))
        .current(first)
    )


DEFINITION: Final = listed(
    "definition",
    "Latency definition",
    "latest: from the latest contributing input; mean: from the mean time of the contributing "
    "inputs; event_time: from the scheduled send time of the latest input; window_time: "
    "of pairs, from the latest scheduled send time in the windows joined; visible: of outputs in "
    "transactions, from the latest input to when readers of committed records have it; "
    "processing_time: from when the pipeline was handed the inputs, of runs that measure it",
    DEFINITIONS,
)
PHASE: Final = listed(
    "phase",
    "Phase",
    "Phase of the run in which the latest input was scheduled",
    ("measure", "warm_up", "cool_down"),
)


def annotation(name: str, sql: str, colour: str) -> dash.AnnotationQuery:
    """Marks on all graphs. sql: time, timeEnd if they last, text, tags."""
    return (
        dash.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(colour)
        .target(TargetQuery(sql, TABLE, name))
    )


def _links() -> dash.DashboardLink:
    return (
        dash.DashboardLink("Dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
        .tooltip("Other dashboards, with the same time range and variables")
    )
