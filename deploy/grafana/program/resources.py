"""Resources: use by services, JVMs, broker and machine, and the overhead of measuring."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels
from deploy.grafana.program.frame import frame, placed
from deploy.grafana.program.panels import About, figures, graph, rows

NOT_SCRAPED: Final = (
    "No broker was scraped in this time range. The collector scrapes while a stack is running."
)
NO_GROUP: Final = "No consumer group with committed offsets in this time range."
# A pipeline's processes are named after their pipeline, all others after their service.
WHO = "if(pipeline = '', toString(service), toString(pipeline))"
OBSERVERS = "('evaluator', 'collector', 'conductor', 'store')"
ASLEEP = "No samples in this time range. The collector samples while a stack is running."
CORES = "Cores used by the processes of each service and pipeline."
MEMORY = "Resident memory of the processes of each service. Shared pages count in each process."
HEAP = "Java heap in use by the broker and by the JVMs of a pipeline, maximum of each interval."
COLLECTION = "Seconds of garbage collection per second."
DISKS = "Bytes per second written to disks by the processes of each service."
JVMS = "heap_used_bytes IS NOT NULL"


def broker_panels() -> tuple[timeseries.Panel, ...]:
    """Broker throughput, storage, and lag of consumer groups."""
    return _traffic(), _records(), _requests(), _sizes(), _lag()


def _traffic() -> timeseries.Panel:
    return graph(
        About(
            "Broker throughput",
            "Bytes per second into and out of all brokers, all topics together.",
            "binBps",
            empty=NOT_SCRAPED,
        ),
        """
SELECT time, sum(bytes_in) AS "in", sum(bytes_out) AS "out"
FROM
(
    SELECT
        $__timeInterval(b.time) AS time,
        source,
        avg(bytes_in_per_second) AS bytes_in,
        avg(bytes_out_per_second) AS bytes_out
    FROM broker_throughput AS b
    WHERE topic = '' AND $__timeFilter(b.time)
    GROUP BY time, source
)
GROUP BY time
ORDER BY time
""",
        {"in": panels.BLUE, "out": panels.ORANGE},
        interval="5s",
    )


def _records() -> timeseries.Panel:
    return _by_topic(
        About(
            "Incoming records by topic",
            "Records per second into each topic, all brokers together. Topics without records are "
            "omitted.",
            "short",
            empty=NOT_SCRAPED,
        ),
        "messages_in_per_second",
        "broker_throughput",
    )


def _requests() -> timeseries.Panel:
    return graph(
        About(
            "Broker request time",
            "Request time as reported by the brokers: the mean since their start, and the 99th "
            "percentile weighted towards the last minutes. A fetch includes the time spent waiting "
            "for records.",
            "ms",
            empty=NOT_SCRAPED,
        ),
        """
SELECT
    $__timeInterval(b.time) AS time,
    avgIf(mean_ms, request = 'Produce') AS "produce, mean",
    maxIf(p99_ms, request = 'Produce') AS "produce, p99",
    avgIf(mean_ms, request = 'FetchConsumer') AS "fetch, mean",
    maxIf(p99_ms, request = 'FetchConsumer') AS "fetch, p99"
FROM broker_requests AS b
WHERE $__timeFilter(b.time)
GROUP BY time
ORDER BY time
""",
        {
            "produce, mean": panels.SKY,
            "produce, p99": panels.BLUE,
            "fetch, mean": panels.YELLOW,
            "fetch, p99": panels.ORANGE,
        },
        interval="5s",
    )


def _sizes() -> timeseries.Panel:
    return _by_topic(
        About(
            "Log size by topic",
            "Bytes of each topic on all brokers, including replicas. Retention limits it.",
            "bytes",
            empty=NOT_SCRAPED,
        ),
        "bytes",
        "broker_log_size",
    )


def _by_topic(about: About, column: str, view: str) -> timeseries.Panel:
    """A line per topic, summed over brokers: each point is the mean of all its scrapes, including
    zeros. Topics without any value in the range are omitted, and so is the sum of all, whose name
    is empty."""
    return graph(
        about,
        f"""
SELECT time, series, value
FROM
(
    SELECT
        time,
        topic AS series,
        sum(of_source) AS value,
        max(sum(of_source)) OVER (PARTITION BY topic) AS most
    FROM
    (
        SELECT $__timeInterval(b.time) AS time, source, topic, avg({column}) AS of_source
        FROM {view} AS b
        WHERE topic != '' AND $__timeFilter(b.time)
        GROUP BY time, source, topic
    )
    GROUP BY time, topic
)
WHERE most > 0
ORDER BY time, series
""",
        {},
        interval="5s",
    )


def _lag() -> timeseries.Panel:
    return graph(
        About(
            "Consumer group lag",
            "Records between the committed offset of a group and the end of the topic, maximum of "
            "each interval. Tidegauge's own services do not commit offsets, so they are not shown.",
            "short",
            width=24,
            empty=NO_GROUP,
        ),
        """
SELECT
    $__timeInterval(l.time) AS time,
    concat(group_id, ' ', topic) AS series,
    max(records_behind) AS value
FROM consumer_lag AS l
WHERE $__timeFilter(l.time)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="5s",
    )


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "resources",
        "Resources",
        "CPU, memory, Java heap, garbage collection, disks, network and pressure; the overhead of "
        "the observers; broker throughput and consumer lag.",
        since="now-1h",
        refresh="30s",
    )
    return placed(
        result,
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
        _processes(),
        _process_traffic(),
        _pull_rates(),
        _scheduler_delays(),
        _each("Disk writes by service", DISKS, "binBps", "sum(written_bytes) / $__interval_s"),
        _network(),
        _pressure(),
        _load(),
        *broker_panels(),
        _totals(),
    )


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
        panels.SERVICES,
        interval="2s",
    )


def _processes() -> timeseries.Panel:
    """One worker of an engine may be idle while another is busy."""
    return _by_process(
        About(
            "CPU cores by process of a pipeline",
            "Cores used by each process of a pipeline, by the name of its program.",
            "short",
            width=24,
            empty="No pipeline ran in this time range.",
        ),
        "arrayZip(mapKeys(cpu_seconds_by_process), mapValues(cpu_seconds_by_process))",
    )


def _process_traffic() -> timeseries.Panel:
    """What is received is above zero, what is sent below."""
    return _by_process(
        About(
            "Network by process of a pipeline",
            "Bytes per second over the TCP connections of each process of a pipeline, also to "
            "other processes of it: received above zero, sent below. What a connection carried "
            "between the last sample and its end is missing.",
            "binBps",
            width=24,
            empty="No pipeline ran in this time range, or its network is not counted.",
        ),
        """arrayConcat(
        arrayMap(
            (name, bytes) -> (concat(name, ' received'), bytes),
            mapKeys(received_bytes_by_process),
            mapValues(received_bytes_by_process)
        ),
        arrayMap(
            (name, bytes) -> (concat(name, ' sent'), -bytes),
            mapKeys(sent_bytes_by_process),
            mapValues(sent_bytes_by_process)
        )
    )""",
    )


def _by_process(about: About, amounts: str) -> timeseries.Panel:
    """Amounts per second of each process of a pipeline. amounts: an expression for pairs of name
    and amount in an interval."""
    return graph(
        about,
        f"""
SELECT
    $__timeInterval(r.time) AS time,
    concat(r.pipeline, ' ', process.1) AS series,
    sum(process.2) / $__interval_s AS value
FROM results_resources AS r
ARRAY JOIN {amounts} AS process
WHERE pipeline != '' AND $__timeFilter(r.time)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="2s",
    )


def _pull_rates() -> timeseries.Panel:
    return graph(
        About(
            "Pull rate",
            "Records per second that the broker hands to a pipeline's Kafka clients, by input. A "
            "record that several stages read counts for each.",
            "short",
            empty="No run with processing_time in this time range: only its proxy sees fetches.",
        ),
        """
SELECT
    $__timeInterval(p.second) AS time,
    concat(p.pipeline, ' ', p.topic) AS series,
    sum(p.records) / $__interval_s AS value
FROM pull_rates AS p
WHERE $__timeFilter(p.second)
GROUP BY time, series
ORDER BY time, series
""",
        {},
        interval="2s",
    )


def _scheduler_delays() -> timeseries.Panel:
    return graph(
        About(
            "Scheduler delay of tasks",
            "Delay of the tasks that ended in each interval, as the engine reports it: time "
            "from the launch of a task until its end in which it was neither prepared nor run, nor "
            "its result fetched.",
            "ms",
            empty="No engine reported the delay of its tasks in this time range.",
        ),
        """
SELECT
    $__timeInterval(p.time) AS time,
    concat(p.pipeline, level.2) AS series,
    quantilesExactWeighted(0.5, 0.99)(task.1, toUInt64(task.2))[level.1] AS value
FROM results_pipeline AS p
ARRAY JOIN arrayZip(scheduler_delays_ms, scheduler_delay_tasks) AS task
ARRAY JOIN [(1, ' p50'), (2, ' p99')] AS level
WHERE $__timeFilter(p.time)
GROUP BY time, series, level.1
ORDER BY time, series
""",
        {},
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
        ((None, panels.GOOD), (0.25, panels.DOUBTFUL), (0.5, panels.BAD)),
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
        ((None, panels.GOOD), (0.2, panels.DOUBTFUL), (0.5, panels.BAD)),
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
        {"received": panels.BLUE, "sent": panels.ORANGE},
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
        {"CPU": panels.ORANGE, "disk": panels.BLUE, "memory": panels.PURPLE},
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
        {"cores": panels.BLUE, "average": panels.ORANGE},
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
