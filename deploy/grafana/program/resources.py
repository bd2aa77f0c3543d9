"""Resources: use by services, JVMs, broker and machine, and the overhead of measuring."""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import palette
from deploy.grafana.program.broker import broker_panels
from deploy.grafana.program.frame import frame, placed
from deploy.grafana.program.panels import About, figures, graph, rows

# A pipeline's processes are named after their pipeline, all others after their service.
WHO = "if(pipeline = '', toString(service), toString(pipeline))"
OBSERVERS = "('evaluator', 'collector', 'conductor', 'store')"
ASLEEP = "No samples in this time range. The collector samples while a stack is running."


def build() -> dash.Dashboard:
    """The dashboard."""
    found = frame(
        "resources",
        "Resources",
        "CPU, memory, Java heap, garbage collection, disks, network and pressure; the overhead of "
        "the observers; broker throughput and consumer lag.",
        since="now-1h",
        refresh="30s",
    )
    return placed(
        found,
        _observing(),
        _machine_now(),
        _each("CPU cores by service", CORES, "short", "sum(cpu_seconds) / $__interval_s"),
        _each("Resident memory by service", MEMORY, "bytes", "avg(memory_bytes)"),
        _each("Java heap in use", HEAP, "bytes", "max(heap_used_bytes)", only=JVMS),
        _each(
            "Share of time in garbage collection",
            COLLECTION,
            "percentunit",
            "sum(gc_seconds) / $__interval_s",
            only=JVMS,
        ),
        _each("Disk writes by service", DISKS, "binBps", "sum(written_bytes) / $__interval_s"),
        _network(),
        _pressure(),
        _load(),
        *broker_panels(),
        _totals(),
    )


CORES = "Cores used by the processes of each service and pipeline."
MEMORY = "Resident memory of the processes of each service. Shared pages count in each process."
HEAP = "Java heap in use by the broker and by the JVMs of a pipeline, maximum of each interval."
COLLECTION = "Seconds of garbage collection per second."
DISKS = "Bytes per second written to disks by the processes of each service."
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
        palette.SERVICES,
        interval="2s",
    )


def _observing() -> stat.Panel:
    return figures(
        About(
            "Observer overhead",
            "Share of the stack's CPU time used by evaluator, store, collector and conductor. The "
            "generator and the broker are part of the load, not observers.",
            "percentunit",
            height=5,
            empty=ASLEEP,
        ),
        f"""
SELECT sumIf(cpu_seconds, service IN {OBSERVERS}) / sum(cpu_seconds) AS "share of CPU time"
FROM results_resources AS r
WHERE service != 'machine' AND $__timeFilter(r.time)
HAVING sum(cpu_seconds) > 0
""",
        ((None, palette.GOOD), (0.25, palette.DOUBTFUL), (0.5, palette.BAD)),
    )


def _machine_now() -> stat.Panel:
    return figures(
        About(
            "Pressure and steal time",
            "Share of the time in which some task waited for a CPU, a disk or memory, and CPU time "
            "that the hypervisor gave to other guests. Latencies measured under high pressure are "
            "those of a busy machine.",
            "percentunit",
            height=5,
            empty=ASLEEP,
        ),
        """
SELECT
    sum(cpu_pressure_seconds) / sum(interval_s) AS "waiting for CPU",
    sum(io_pressure_seconds) / sum(interval_s) AS "waiting for disk",
    sum(memory_pressure_seconds) / sum(interval_s) AS "waiting for memory",
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
            "Network traffic of the machine",
            "Bytes per second on all network interfaces, including loopback where it is counted.",
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
            "Share of the time in which some task waited for a CPU, a disk or memory.",
            "percentunit",
            empty=ASLEEP,
        ),
        """
SELECT
    $__timeInterval(r.time) AS time,
    sum(cpu_pressure_seconds) / sum(interval_s) AS "CPU",
    sum(io_pressure_seconds) / sum(interval_s) AS disk,
    sum(memory_pressure_seconds) / sum(interval_s) AS memory
FROM results_resources AS r
WHERE service = 'machine' AND $__timeFilter(r.time)
GROUP BY time
ORDER BY time
""",
        {"CPU": palette.ORANGE, "disk": palette.BLUE, "memory": palette.PURPLE},
        interval="2s",
    )


def _load() -> timeseries.Panel:
    return graph(
        About(
            "Load of the machine",
            "Cores used by all processes on the machine, and the one-minute load average.",
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
            "Resources used by service",
            "Mean cores, maximum memory and Java heap, garbage collection time, disk traffic, and "
            "maximum number of open files in this time range.",
            "string",
            width=24,
            height=9,
            empty=ASLEEP,
        ),
        f"""
SELECT
    {WHO} AS component,
    sum(cpu_seconds) / sum(interval_s) AS cores,
    max(memory_bytes) AS memory,
    max(heap_used_bytes) AS heap,
    sum(gc_seconds) AS "GC time",
    sum(read_bytes) AS read,
    sum(written_bytes) AS written,
    max(open_files) AS "open files"
FROM results_resources AS r
WHERE $__timeFilter(r.time)
GROUP BY component
ORDER BY cores DESC
LIMIT 100
""",
        {
            "cores": "short",
            "memory": "bytes",
            "heap": "bytes",
            "GC time": "s",
            "read": "bytes",
            "written": "bytes",
            "open files": "short",
        },
    )
