"""A dashboard with every supported element, whose queries generate their own data."""

from typing import Any

TIMES = "SELECT $__fromTime + number AS time"
QUERIES = {"timeseries": 0, "heatmap": 0}


def panel(number: int, kind: str, title: str, sql: str = "", **fields: Any) -> dict[str, Any]:
    """One panel in Grafana's format."""
    targets = [{"refId": "A", "format": QUERIES.get(kind, 1), "rawSql": sql}] if sql else []
    place = {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8}
    made = {"id": number, "type": kind, "title": title, "gridPos": place, "targets": targets}
    defaults = {"unit": "ms", **fields.pop("defaults", {})}
    overrides = fields.pop("overrides", [])
    config = {"fieldConfig": {"defaults": defaults, "overrides": overrides}}
    return made | config | {"description": f"About {title}."} | fields


def override(name: str, **properties: Any) -> dict[str, Any]:
    """Properties of the field of this name; `_` in a property stands for `.`."""
    given = [{"id": key.replace("_", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": given}


LINK = {"title": "Show", "url": "/d/odd?var-size=${__data.fields.name}&from=1&to=2"}
MAPPED = [{"type": "value", "options": {"1": {"text": "one", "color": "red"}}}]
STEPS = [{"value": None, "color": "green"}, {"value": 40, "color": "red"}]

DASHBOARD: dict[str, Any] = {
    "uid": "odd",
    "title": "Odd",
    "tags": ["odd"],
    "timezone": "utc",
    "time": {"from": "now-1m", "to": "now"},
    "links": [
        {"type": "dashboards", "tags": ["odd"], "title": "", "keepTime": True, "includeVars": True}
    ],
    "templating": {
        "list": [
            {"name": "datasource", "type": "datasource", "query": "x"},
            {"name": "size", "label": "Size", "type": "custom", "query": "small, large"},
            {
                "name": "stages",
                "type": "query",
                "multi": True,
                "includeAll": True,
                "current": {"value": ["$__all"]},
                "query": {"rawSql": "SELECT arrayJoin(['join', 'parse'])"},
            },
        ]
    },
    "annotations": {
        "list": [
            {
                "name": "Events",
                "enable": True,
                "iconColor": "purple",
                "target": {"rawSql": "SELECT $__fromTime + 10 AS time, 'It happened' AS text"},
            }
        ]
    },
    "panels": [
        panel(
            *(1, "stat", "Figure of $size"),
            "SELECT 42 AS answer, length(${size:sqlstring}) AS letters",
            defaults={"thresholds": {"mode": "absolute", "steps": STEPS}},
            overrides=[override("letters", unit="short")],
        ),
        panel(
            *(2, "timeseries", "Lines"),
            f"{TIMES}, concat('s', toString(number % 2)) AS series, number + 1 AS v"
            " FROM numbers(60)",
            defaults={"displayName": "${__field.labels.series}"},
        ),
        panel(
            *(3, "table", "Rows"),
            "SELECT 'large' AS name, 1500 AS took, 1 AS state, '<img src=x>' AS html, 7 AS hidden",
            overrides=[
                override("name", links=[LINK]),
                override("state", mappings=MAPPED, custom_cellOptions={"type": "color-text"}),
                override("hidden", custom_hidden=True),
            ],
        ),
        panel(
            *(4, "heatmap", "Cells"),
            f'{TIMES}, number AS "1", 60 - number AS "2-5" FROM numbers(60)',
        ),
        panel(5, "barchart", "Bars", "SELECT 'a' AS name, 3 AS low, 5 AS high"),
        panel(6, "text", "Words", options={"mode": "markdown", "content": "**Bold** of $size"}),
        panel(7, "geomap", "Map", "SELECT 1"),
        panel(8, "stat", "Failing", "SELECT nosuch FROM results_lifecycle"),
        panel(9, "table", "Empty", "SELECT 1 WHERE 0", defaults={"noValue": "None was there."}),
        panel(10, "stat", "Writing", "TRUNCATE TABLE results_lifecycle"),
        panel(11, "stat", "Partly", "SELECT 1 AS one", transformations=[{"id": "reduce"}]),
        panel(
            *(13, "barchart", "Pivoted"),
            "SELECT group, bar, height FROM values('group String, bar String, height UInt8',"
            " ('a', 'left', 3), ('a', 'right', 5), ('b', 'left', 4))",
            transformations=[
                {
                    "id": "groupingToMatrix",
                    "options": {"rowField": "group", "columnField": "bar", "valueField": "height"},
                }
            ],
        ),
        panel(
            *(12, "timeseries", "By stage"),
            f"{TIMES}, 1 AS v FROM numbers(60)"
            " WHERE $__conditionalAll('join' IN (${stages:sqlstring}), $stages)",
        ),
    ],
}
