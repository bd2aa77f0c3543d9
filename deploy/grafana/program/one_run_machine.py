"""Panels of Run about resources, causes of late seconds, events and the machine."""

from grafana_foundation_sdk.builders import table

from deploy.grafana.program.panels import About, rows

# Samples between runs have an empty run id, and so has a time range without runs.
THIS_RUN = "run_id = ${run:sqlstring} AND run_id != ''"


def used() -> table.Panel:
    """What each service and pipeline used."""
    return rows(
        About(
            "Resources used",
            "Mean cores, maximum memory and Java heap, and garbage collection time of each service "
            "and pipeline over the whole run.",
            "string",
            height=8,
            empty="The collector took no samples of this run.",
        ),
        f"""
SELECT
    if(pipeline = '', toString(service), toString(pipeline)) AS component,
    mean_cpu_cores AS cores,
    max_memory_bytes AS memory,
    max_heap_used_bytes AS heap,
    gc_seconds AS "GC time"
FROM resources_summary
WHERE {THIS_RUN}
ORDER BY cores DESC
LIMIT 100
""",
        {"cores": "short", "memory": "bytes", "heap": "bytes", "GC time": "s"},
    )


def whose() -> table.Panel:
    """The causes of late seconds."""
    return rows(
        About(
            "Causes of late seconds",
            "Seconds with latency well above the run's own level, and whether the generator, the "
            "broker, the evaluator or the machine caused it, not the pipeline.",
            "string",
            height=5,
            empty="The run is not concluded.",
        ),
        f"""
SELECT
    multiIf(disturbed IS NULL, 'unknown', disturbed, 'disturbed', 'undisturbed') AS verdict,
    late_seconds AS "late seconds",
    seconds AS "of seconds",
    said AS explanation
FROM run_attribution
WHERE {THIS_RUN}
""",
        {"late seconds": "short", "of seconds": "short"},
    )


def room() -> table.Panel:
    """Cores used, and waits for cores."""
    return rows(
        About(
            "CPU use and waiting",
            "Cores used by each part in the measured phase, and the share of its runnable time "
            "that it waited for a core.",
            "string",
            height=9,
            empty="The run is not concluded.",
        ),
        f"""
SELECT part, cpu_cores AS cores, cpu_share AS "of the machine", waiting_share AS waiting
FROM run_room
WHERE {THIS_RUN}
ORDER BY part = 'machine', cores DESC
LIMIT 100
""",
        {"cores": "short", "of the machine": "percentunit", "waiting": "percentunit"},
    )


def events() -> table.Panel:
    """The events of the run."""
    return rows(
        About(
            "Events",
            "Events of the run in order, without the periodic reports of the evaluator.",
            "string",
            height=9,
            empty="There is no run in this time range.",
        ),
        f"""
SELECT e.time AS time, producer, event, phase, substring(detail, 1, 200) AS detail
FROM results_lifecycle AS e
WHERE {THIS_RUN} AND event NOT IN ('evaluating', 'run_requested', 'watch_begun', 'preparing')
ORDER BY e.time, _offset
LIMIT 500
""",
        {"time": "dateTimeAsIso"},
    )


def environment() -> table.Panel:
    """Versions and machine."""
    return rows(
        About(
            "Environment",
            "Versions and machine, as recorded when the run was requested.",
            "string",
            height=9,
            empty="There is no run in this time range.",
        ),
        f"""
SELECT
    entry.1 AS part,
    if(startsWith(entry.2, '"'), JSONExtractString(concat('[', entry.2, ']'), 1), entry.2) AS value
FROM results_lifecycle
ARRAY JOIN JSONExtractKeysAndValuesRaw(detail, 'environment') AS entry
WHERE {THIS_RUN} AND event IN ('run_requested', 'watch_begun')
LIMIT 50
""",
    )
