"""Resources: use by services, JVMs, broker and machine, and the overhead of measurement."""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import palette
from deploy.grafana.program.broker import broker_panels
from deploy.grafana.program.frame import frame, placed
from deploy.grafana.program.panels import About, figures, graph, rows

# A pipeline's processes are named after their pipeline, all others after their service.
WHO = "if(pipeline = '', toString(service), toString(pipeline))"
OBSERVERS = "('evaluator', 'collector', 'conductor', 'store')"
ASLEEP = "The collector sampled nothing in this range of time. It samples while a stack is up."
COLOURS = palette.SERVICES | {}


def build() -> dash.Dashboard:
    """The dashboard."""
    found = frame(
        "resources",
        "Resources",
        "Processors, memory, Java heap and its collection, disks, network and pressure; what of it "
        "the observing itself costs; what the brokers do and who is behind.",
        since="now-1h",
        refresh="30s",
    )
    return placed(
        found,
        _observing(),
        _machine_now(),
        _each("Processor cores by service", CORES, "short", "sum(cpu_seconds) / $__interval_s"),
        _each("Resident memory by service", MEMORY, "bytes", "avg(memory_bytes)"),
        _each("Java heap in use", HEAP, "bytes", "max(heap_used_bytes)", only=JVMS),
        _each(
            "Share of time in garbage collection",
            COLLECTION,
            "percentunit",
            "sum(gc_seconds) / $__interval_s",
            only=JVMS,
        ),
        _each("Written to disks", DISKS, "binBps", "sum(written_bytes) / $__interval_s"),
        _network(),
        _pressure(),
        _load(),
        *broker_panels(),
        _totals(),
    )


CORES = "Cores kept busy by the processes of each service; a pipeline's by its name."
MEMORY = "Memory that the processes of each service hold, shared pages counted in each."
HEAP = "Java heap in use by the broker and by every JVM of a pipeline, the most of each point."
COLLECTION = "Seconds that garbage collectors worked, per second."
DISKS = (
    "Bytes per second that each service's processes had written to disks; the broker's are logs."
)
JVMS = "heap_used_bytes IS NOT NULL"


def _each(
    title: str, description: str, unit: str, value: str, *, only: str = "1 = 1"
) -> timeseries.Panel:
    """A measure of every service, without the machine."""
    return graph(
        About(title, description, unit, empty=ASLEEP),
        f"""
SELECT
    $__timeInterval(r.time) AS time,
    {WHO} AS series,
    {value} AS value
FROM results_resources AS r
WHERE service != 'machine' AND $__timeFilter(r.time) AND {only}
GROUP BY time, series
ORDER BY time, series
""",
        COLOURS,
        interval="2s",
    )


def _observing() -> stat.Panel:
    return figures(
        About(
            "Cost of observing",
            "Share of all processor time of the stack that evaluator, store, collector and "
            "conductor took; how many cores that is, is below. The generator and the broker are "
            "part of the load, not of the observing.",
            "percentunit",
            height=5,
            empty=ASLEEP,
        ),
        f"""
SELECT sumIf(cpu_seconds, service IN {OBSERVERS}) / sum(cpu_seconds) AS "of the time of the stack"
FROM results_resources AS r
WHERE service != 'machine' AND $__timeFilter(r.time)
HAVING sum(cpu_seconds) > 0
""",
        ((None, palette.GOOD), (0.25, palette.DOUBTFUL), (0.5, palette.BAD)),
    )


def _machine_now() -> stat.Panel:
    return figures(
        About(
            "The machine in this range of time",
            "Share of the time in which some task waited for a processor, a disk or memory, and "
            "processor time that a hypervisor gave to others. High pressure makes latencies "
            "measured meanwhile those of a busy machine.",
            "percentunit",
            height=5,
            empty=ASLEEP,
        ),
        """
SELECT
    sum(cpu_pressure_seconds) / sum(interval_s) AS "waiting for a processor",
    sum(io_pressure_seconds) / sum(interval_s) AS "for a disk",
    sum(memory_pressure_seconds) / sum(interval_s) AS "for memory",
    sum(steal_seconds) / sum(interval_s) AS stolen
FROM results_resources AS r
WHERE service = 'machine' AND $__timeFilter(r.time)
HAVING count() > 0
""",
        ((None, palette.GOOD), (0.2, palette.DOUBTFUL), (0.5, palette.BAD)),
    )


def _network() -> timeseries.Panel:
    return graph(
        About(
            "Network of the machine",
            "Bytes per second over all networks of the machine, loopback too, where it is counted.",
            "binBps",
            empty=ASLEEP,
        ),
        """
SELECT
    $__timeInterval(r.time) AS time,
    sum(received_bytes) / $__interval_s AS received,
    sum(sent_bytes) / $__interval_s AS sent
FROM results_resources AS r
WHERE service = 'machine' AND $__timeFilter(r.time)
GROUP BY time
ORDER BY time
""",
        {"received": palette.BLUE, "sent": palette.ORANGE},
        interval="2s",
    )


def _pressure() -> timeseries.Panel:
    return graph(
        About(
            "Pressure on the machine",
            "Share of the time in which some task waited for a processor, a disk or memory.",
            "percentunit",
            empty=ASLEEP,
        ),
        """
SELECT
    $__timeInterval(r.time) AS time,
    sum(cpu_pressure_seconds) / sum(interval_s) AS processor,
    sum(io_pressure_seconds) / sum(interval_s) AS disk,
    sum(memory_pressure_seconds) / sum(interval_s) AS memory
FROM results_resources AS r
WHERE service = 'machine' AND $__timeFilter(r.time)
GROUP BY time
ORDER BY time
""",
        {"processor": palette.ORANGE, "disk": palette.BLUE, "memory": palette.PURPLE},
        interval="2s",
    )


def _load() -> timeseries.Panel:
    return graph(
        About(
            "Load of the machine",
            "Cores kept busy by anything on the machine, and its load average of a minute.",
            "short",
            empty=ASLEEP,
        ),
        """
SELECT
    $__timeInterval(r.time) AS time,
    sum(cpu_seconds) / sum(interval_s) AS "busy cores",
    avg(load_1m) AS "load average"
FROM results_resources AS r
WHERE service = 'machine' AND $__timeFilter(r.time)
GROUP BY time
ORDER BY time
""",
        {"cores": palette.BLUE, "average": palette.ORANGE},
        interval="2s",
    )


def _totals() -> table.Panel:
    return rows(
        About(
            "What each service used",
            "Over this range of time: mean cores, most memory and Java heap, time in garbage "
            "collection, disk traffic, and most open files.",
            "string",
            width=24,
            height=9,
            empty=ASLEEP,
        ),
        f"""
SELECT
    {WHO} AS who,
    sum(cpu_seconds) / sum(interval_s) AS cores,
    max(memory_bytes) AS memory,
    max(heap_used_bytes) AS heap,
    sum(gc_seconds) AS "in collection",
    sum(read_bytes) AS read,
    sum(written_bytes) AS written,
    max(open_files) AS "open files"
FROM results_resources AS r
WHERE $__timeFilter(r.time)
GROUP BY who
ORDER BY cores DESC
LIMIT 100
""",
        {
            "cores": "short",
            "memory": "bytes",
            "heap": "bytes",
            "in collection": "s",
            "read": "bytes",
            "written": "bytes",
            "open files": "short",
        },
    )
