"""The panel types, with common options.

Query results by panel type (for other viewers, see docs/decisions/0601):
- graph: `time`, then one column per line; or `time`, `series` and one number, one line per series.
- figures: one row, one figure per column.
- rows: any table; column names are displayed unchanged.
- bars: first the name of a group, then one column per bar of a group; or, with `pivoted`, a group,
  a bar and a number, one row per bar.
- heatmap: `time`, then one column per band from the lowest to the highest, with counts.

Colours are distinguishable by colour-blind people (Okabe and Ito, 2008). A stage, a pipeline or a
percentile has the same colour everywhere. Good is blue and bad is vermilion, never green and red. A
name also matches at the end of a series: `PIPELINE STAGE`.

A link from a run takes the run and its time range from fields of the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from grafana_foundation_sdk.builders import barchart, common, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.runtime import UnknownDataquery
from grafana_foundation_sdk.models import common as shared
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heat

from services.definitions.domains import domain_names, load_domain

ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#999999"

GOOD, DOUBTFUL, BAD = BLUE, ORANGE, VERMILION

# From the domains; other stages get one of Grafana's colours, by name.
STAGES: Final = {
    stage.name: stage.colour
    for name in reversed(domain_names())
    for stage in load_domain(name).spec.stages
    if stage.colour
}
PERCENTILES: Final = {"p50": SKY, "p90": GREEN, "p99": ORANGE, "p99.9": PURPLE, "max": VERMILION}
VERDICTS: Final = {
    "exact": BLUE,
    "wrong": VERMILION,
    "missing": ORANGE,
    "late": YELLOW,
    "duplicate": PURPLE,
    "unexpected": SKY,
}
SERVICES: Final = {
    "kafka": ORANGE,
    "store": PURPLE,
    "evaluator": SKY,
    "generator": GREEN,
    "collector": YELLOW,
    "conductor": GREY,
    "machine": VERMILION,
    "runner": BLUE,
    "proxy": BLUE,
}


PLUGIN: Final = "grafana-clickhouse-datasource"
DATASOURCE: Final = shared.DataSourceRef(type_val=PLUGIN, uid="${datasource}")
TIMESERIES, TABLE = 0, 1  # the data source's `format`
NOTHING: Final = "Nothing was measured in this time range. Start a run: ./tidegauge run"
# A line is interrupted after this time without data, by the minimum interval of its points, so that
# it does not connect runs. Where points are farther apart, in ranges of some hours, Grafana shows
# points instead of lines.
GAPS_MS: Final = {"1s": 15_000.0, "2s": 15_000.0, "5s": 45_000.0, "10s": 45_000.0}
DASHED: Final = {"fill": "dash", "dash": [8, 6]}
Thresholds = tuple[tuple[float | None, str], ...]
NONE_IS_GOOD: Final[Thresholds] = ((None, GOOD), (1, BAD))
TO_RUN: Final = (
    "/d/tidegauge-run?var-run=${__data.fields.run}&from=${__data.fields.from_ms}"
    "&to=${__data.fields.to_ms}&${datasource:queryparam}"
)


@dataclass(frozen=True)
class TargetQuery(Builder[UnknownDataquery]):
    """One query in the format of the ClickHouse data source."""

    sql: str
    format: int
    ref: str = "A"

    def build(self) -> UnknownDataquery:
        return UnknownDataquery(
            {
                "refId": self.ref,
                "datasource": {"type": PLUGIN, "uid": "${datasource}"},
                "editorType": "sql",
                "queryType": "timeseries" if self.format == TIMESERIES else "table",
                "format": self.format,
                "pluginVersion": "4.0.0",
                "rawSql": self.sql.strip(),
            }
        )


@dataclass(frozen=True)
class About:
    """Title and description of a panel.

    unit: a Grafana unit. width: of 24. empty: text shown without rows.
    """

    title: str
    description: str
    unit: str
    width: int = 12
    height: int = 8
    empty: str = NOTHING


def graph(
    about: About,
    sql: str,
    colours: Mapping[str, str],
    *,
    bars: bool = False,
    stacked: bool = False,
    logarithmic: bool = False,
    interval: str = "1s",
) -> timeseries.Panel:
    """Lines over time. The last word of a line's name determines its colour; names that begin with
    `limit` are dashed, and grey without a colour. interval: minimum of the points."""
    panel: timeseries.Panel = _about(timeseries.Panel(), about, sql, TIMESERIES)
    panel = (
        panel.interval(interval)
        .line_width(0 if bars else 2)
        .fill_opacity(70 if bars else 15 if stacked else 0)
        .draw_style(shared.GraphDrawStyle.BARS if bars else shared.GraphDrawStyle.LINE)
        .show_points(shared.VisibilityMode.AUTO)
        .span_nulls(False)
        .insert_nulls(False if bars else GAPS_MS[interval])
        .legend(_legend())
        .tooltip(_tooltip())
    )
    if "AS series" in sql:
        panel = panel.display_name("${__field.labels.series}")
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(shared.StackingMode.NORMAL))
    if logarithmic:
        scale = common.ScaleDistributionConfig().type(shared.ScaleDistribution.LOG).log(10)
        panel = panel.scale_distribution(scale)
    if "'limit " in sql:
        grey = {"mode": "fixed", "fixedColor": GREY}
        dashed = [_property("custom.lineStyle", DASHED), _property("color", grey)]
        panel = panel.override_by_regexp("/^limit /", dashed)
    _colour(panel, colours)
    return panel


def figures(about: About, sql: str, thresholds: Thresholds) -> stat.Panel:
    """Large numbers from one row; coloured by thresholds."""
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"]).fields("/.*/").values(False)
    panel: stat.Panel = _about(stat.Panel(), about, sql, TABLE)
    return (
        panel.thresholds(_thresholds(thresholds))
        .reduce_options(reduced)
        .color_mode(shared.BigValueColorMode.VALUE)
        .graph_mode(shared.BigValueGraphMode.NONE)
        .text_mode(shared.BigValueTextMode.VALUE_AND_NAME)
    )


def rows(
    about: About,
    sql: str,
    units: Mapping[str, str] | None = None,
    *,
    judged: Mapping[str, Thresholds] | None = None,
    links: Mapping[str, str] | None = None,
    hidden: tuple[str, ...] = (),
) -> table.Panel:
    """A table. units: per column. judged: columns whose cells are coloured by thresholds. links:
    targets of clicks on a column's cells. hidden: columns used only by links."""
    panel: table.Panel = _about(table.Panel(), about, sql, TABLE)
    properties: dict[str, list[model.DynamicConfigValue]] = {}
    for name, unit in (units or {}).items():
        properties.setdefault(name, []).append(_property("unit", unit))
    for name, limits in (judged or {}).items():
        properties.setdefault(name, []).extend(
            [
                _property("custom.cellOptions", {"type": "color-text"}),
                _property("thresholds", _thresholds(limits).build()),
                _property("color", {"mode": "thresholds"}),
            ]
        )
    for name, url in (links or {}).items():
        link = {"title": "Show it", "url": url}
        properties.setdefault(name, []).append(_property("links", [link]))
    for name in hidden:
        properties.setdefault(name, []).append(_property("custom.hidden", True))
    for name, given in properties.items():
        panel = panel.override_by_name(name, given)
    return panel


def bars(
    about: About,
    sql: str,
    colours: Mapping[str, str],
    axis: str,
    *,
    pivoted: tuple[str, str, str] | None = None,
) -> barchart.Panel:
    """Bars in groups. axis: label of the groups. pivoted: names of the columns with the group, the
    bar and its height, if the query returns one row per bar."""
    panel: barchart.Panel = _about(barchart.Panel(), about, sql, TABLE)
    if pivoted:
        group, bar, height = pivoted
        options = {"rowField": group, "columnField": bar, "valueField": height}
        panel = panel.with_transformation(
            model.DataTransformerConfig(
                id_val="groupingToMatrix", options=options | {"emptyValue": "null"}
            )
        )
    panel = (
        panel.axis_label(axis).legend(_legend()).tooltip(_tooltip()).fill_opacity(80).line_width(0)
    )
    _colour(panel, colours)
    return panel


def heat_over_time(about: About, sql: str) -> heatmap.Panel:
    """Counts by time and band; darker is more, on a scale that makes single counts visible."""
    colour = (
        heatmap.HeatmapColorOptions()
        .mode(heat.HeatmapColorMode.SCHEME)
        .scheme("Viridis")
        .scale(heat.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
    )
    panel: heatmap.Panel = _about(heatmap.Panel(), about, sql, TIMESERIES)
    return panel.calculate(False).color(colour).interval("1s").show_legend().cell_gap(0)


def _about(panel: Any, about: About, sql: str, form: int) -> Any:
    return (
        panel.title(about.title)
        .description(about.description)
        .unit(about.unit)
        .span(about.width)
        .height(about.height)
        .no_value(about.empty)
        .datasource(DATASOURCE)
        .with_target(TargetQuery(sql, form))
    )


def _colour(panel: Any, colours: Mapping[str, str]) -> None:
    """Fixed colours by the last word of a name; others get one of Grafana's colours."""
    mode = model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME
    panel.color_scheme(dash.FieldColor().mode(mode))
    for name, colour in colours.items():
        fixed = _property("color", {"mode": "fixed", "fixedColor": colour})
        panel.override_by_regexp(f"/(^| ){name.replace('.', chr(92) + '.')}$/", [fixed])


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)


def _thresholds(steps: Thresholds) -> dash.ThresholdsConfig:
    limits = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dash.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(limits)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(shared.LegendDisplayMode.LIST)
        .placement(shared.LegendPlacement.BOTTOM)
    )


def _tooltip() -> common.VizTooltipOptions:
    multi = common.VizTooltipOptions().mode(shared.TooltipDisplayMode.MULTI)
    return multi.sort(shared.SortOrder.DESCENDING)
