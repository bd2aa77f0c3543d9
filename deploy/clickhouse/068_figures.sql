-- One row per run, pipeline and stage with everything known about it, for queries over runs.

CREATE OR REPLACE VIEW tidegauge.figures AS
WITH
    plans AS
    (
        SELECT
            run_id,
            e.time AS requested_at,
            detail AS request,
            JSONExtractRaw(request, 'workload') AS w,
            JSONExtract(request, 'published', 'Map(String, Array(String))') AS published,
            JSONExtract(request, 'stages', 'Array(String)') AS asked,
            JSONExtractArrayRaw(request, 'pipelines') AS described
        FROM tidegauge.results_lifecycle AS e
        WHERE event IN ('run_requested', 'watch_begun')
        ORDER BY run_id, e.time, e._offset
        LIMIT 1 BY run_id
    ),
    cells AS
    (
        SELECT
            *,
            p,
            JSONExtractString(p, 'name') AS pipeline,
            JSONExtract(p, 'stages', 'Array(String)') AS own,
            if(
                mapContains(published, pipeline),
                published[pipeline],
                arrayFilter(name -> empty(own) OR has(own, name), asked)
            ) AS of_pipeline
        FROM plans
        ARRAY JOIN described AS p
    ),
    phases AS
    (
        SELECT
            run_id,
            argMinIf(detail, e.time, e.phase = 'measure') AS measure,
            toNullable(fromUnixTimestamp64Milli(JSONExtractInt(measure, 'start_ms'))) AS measured_from,
            toNullable(fromUnixTimestamp64Milli(JSONExtractInt(measure, 'end_ms'))) AS measured_until,
            countIf(e.phase = 'cool_down') > 0 AS is_whole
        FROM tidegauge.results_lifecycle AS e
        WHERE event = 'phase_started' AND e.phase IN ('measure', 'cool_down')
        GROUP BY run_id
        HAVING measure != ''
    ),
    sending AS
    (
        SELECT run_id, dateDiff('millisecond', min(g.second), max(g.second)) + 1000 AS sending_ms
        FROM tidegauge.results_generator AS g
        WHERE phase = 'measure' AND g.sent > 0
        GROUP BY run_id
    ),
    extrapolated AS
    (
        SELECT
            run_id,
            sum(r.interval_s) AS machine_s,
            toNullable(sum(r.cpu_pressure_seconds) / machine_s) AS cpu_pressure,
            toNullable(sum(r.steal_seconds) / machine_s) AS stolen_cores,
            any(dateDiff('ms', b.measured_from, b.measured_until)) / 1000 AS measured_s,
            -- Extrapolates the CPU time of a run during which the collector was unavailable.
            if(any(b.is_whole) AND machine_s < 0.95 * measured_s, measured_s / machine_s, 1) AS missing
        FROM tidegauge.results_resources AS r
        INNER JOIN phases AS b USING (run_id)
        WHERE r.service = 'machine' AND r.time >= b.measured_from AND r.time < b.measured_until
        GROUP BY run_id
        HAVING machine_s > 0
    ),
    used AS
    (
        SELECT
            run_id,
            r.pipeline AS pipeline,
            toNullable(sum(r.cpu_seconds)) AS cpu_seconds,
            toNullable(sum(r.cpu_seconds) / sum(r.interval_s)) AS cpu_cores,
            toNullable(max(r.memory_bytes)) AS memory_bytes,
            toNullable(max(r.heap_used_bytes)) AS heap_bytes,
            toNullable(min(r.heap_used_bytes)) AS heap_min_bytes,
            toNullable(sum(r.heap_used_bytes * r.interval_s) / sumIf(r.interval_s, r.heap_used_bytes IS NOT NULL)) AS heap_mean_bytes,
            toNullable(sum(r.gc_seconds)) AS gc_seconds,
            toNullable(sum(r.jit_seconds)) AS jit_seconds
        FROM tidegauge.results_resources AS r
        INNER JOIN phases AS b USING (run_id)
        WHERE r.pipeline != '' AND r.time >= b.measured_from AND r.time < b.measured_until
        GROUP BY run_id, r.pipeline
    ),
    behind AS
    (
        SELECT run_id, pipeline, stage, max(lag_records) AS lag_records
        FROM tidegauge.results_pipeline AS g
        INNER JOIN phases AS b USING (run_id)
        WHERE g.time >= b.measured_from AND g.time < b.measured_until
        GROUP BY run_id, pipeline, stage
    ),
    prepared AS
    (
        SELECT
            run_id,
            toNullable(anyIf(
                arrayMax(
                    place -> length(place.2),
                    JSONExtractKeysAndValues(detail, 'start_offsets', 'Array(Int64)')
                ),
                event = 'preparing'
            )) AS partitions,
            -- A rate found by a search, or a fraction of it, is not in the request.
            anyOrNullIf(
                JSONExtractFloat(detail, 'request', 'workload', 'load', 'rate_per_second'),
                event = 'preparing' AND JSONHas(detail, 'request', 'workload')
            ) AS rate_per_second,
            mapFromArrays(
                groupArrayIf(toString(e.pipeline), event = 'ready' AND e.pipeline != ''),
                groupArrayIf(
                    arrayFirst(
                        x -> endsWith(x.1, 'version'),
                        JSONExtractKeysAndValues(detail, 'String')
                    ).2,
                    event = 'ready' AND e.pipeline != ''
                )
            ) AS versions
        FROM tidegauge.results_lifecycle AS e
        WHERE event IN ('preparing', 'ready')
        GROUP BY run_id
    ),
    latency AS
    (
        SELECT
            run_id,
            pipeline,
            stage,
            toNullable(anyIf(l.count, definition = 'latest')) AS measured_outputs,
            toNullable(anyIf(l.min_ms, definition = 'latest')) AS min_ms,
            toNullable(anyIf(l.{percentile}_ms, definition = 'latest')) AS {percentile}_ms,
            toNullable(anyIf(l.max_ms, definition = 'latest')) AS max_ms,
            toNullable(anyIf(l.mean_ms, definition = 'latest')) AS mean_ms,
            toNullable(anyIf(l.middle_ms, definition = 'latest')) AS middle_ms,
            toNullable(anyIf(l.p50_ms, definition = 'mean')) AS of_mean_p50_ms,
            toNullable(anyIf(l.p99_ms, definition = 'mean')) AS of_mean_p99_ms,
            toNullable(anyIf(l.p50_ms, definition = 'event_time')) AS event_time_p50_ms,
            toNullable(anyIf(l.p99_ms, definition = 'event_time')) AS event_time_p99_ms,
            anyIf(toNullable(l.p50_ms), definition = 'visible') AS visible_p50_ms,
            anyIf(toNullable(l.p99_ms), definition = 'visible') AS visible_p99_ms
        FROM tidegauge.latency_summary AS l
        WHERE phase = 'measure' AND run_id NOT IN
        (
            SELECT run_id
            FROM tidegauge.results_conclusions
            WHERE kind = 'run' AND JSONExtractString(detail, 'watch', 'unmeasured') != ''
        )
        GROUP BY run_id, pipeline, stage
        HAVING countIf(definition = 'latest') > 0
    ),
    judged AS
    (
        SELECT
            run_id,
            JSONExtract(detail, 'disturbed', 'Nullable(Bool)') AS disturbed,
            JSONExtract(detail, 'room', 'machine', 'cpu_share', 'Nullable(Float64)')
                AS machine_cpu_share,
            JSONExtract(detail, 'room', 'machine', 'saturated', 'Nullable(Bool)') AS saturated,
            JSONExtract(detail, 'room', 'machine', 'waited', 'Array(String)') AS waited,
            JSONExtract(detail, 'heap', 'Map(String, Tuple(limited Nullable(Bool)))') AS heap
        FROM tidegauge.results_conclusions AS k
        WHERE kind = 'run'
        ORDER BY run_id, k.time DESC, k._offset DESC
        LIMIT 1 BY run_id
    )
SELECT
    c.run_id AS run_id,
    c.requested_at AS requested_at,
    r.valid AS valid,
    r.clean AS clean,
    r.invalid_reasons AS invalid_reasons,
    r.steady AS steady,
    r.moving AS moving,
    j.disturbed AS disturbed,
    r.step_of AS step_of,
    JSONExtractString(c.w, 'name') AS workload,
    ifNull(
        nullIf(JSONExtractString(c.request, 'domain', 'name'), ''),
        JSONExtractString(c.w, 'domain')
    ) AS domain,
    c.pipeline AS pipeline,
    arrayFilter(
        name -> name != c.pipeline,
        arrayMap(one -> JSONExtractString(one, 'name'), c.described)
    ) AS beside,
    JSONExtractString(c.p, 'engine') AS engine,
    n.versions[c.pipeline] AS engine_version,
    coalesce(
        JSONExtract(c.request, 'scaled', 'workers', 'Nullable(UInt32)'),
        JSONExtract(c.w, 'workers', 'Nullable(UInt32)'),
        JSONExtract(c.p, 'workers', 'Nullable(UInt32)')
    ) AS workers,
    JSONExtractString(c.request, 'topologies', c.pipeline) AS topology,
    JSONExtractString(c.p, 'mode') AS mode,
    JSONExtractString(c.p, 'implementation') AS implementation,
    JSONExtract(c.p, 'trigger_interval_ms', 'Nullable(Int64)') AS trigger_interval_ms,
    mapFromArrays(
        arrayMap(x -> x.1, JSONExtractKeysAndValuesRaw(c.p)),
        arrayMap(x -> trim(BOTH '"' FROM x.2), JSONExtractKeysAndValuesRaw(c.p))
    ) AS settings,
    c.stage AS stage,
    s.kind AS kind,
    s.position AS position,
    JSONExtract(
        arrayFirst(
            spec -> JSONExtractString(spec, 'name') = c.stage,
            JSONExtractArrayRaw(c.request, 'domain', 'stages')
        ),
        'window', 'size_s', 'Nullable(UInt32)'
    ) AS window_s,
    ifNull(n.rate_per_second, JSONExtractFloat(c.w, 'load', 'rate_per_second')) AS rate_per_second,
    JSONExtractString(c.w, 'load', 'shape') AS load_shape,
    mapFilter(
        (_, text) -> text NOT IN ('null', '[]', '{}', ''),
        mapFromArrays(
            arrayMap(x -> x.1, JSONExtractKeysAndValuesRaw(c.w, 'load')),
            arrayMap(x -> trim(BOTH '"' FROM x.2), JSONExtractKeysAndValuesRaw(c.w, 'load'))
        )
    ) AS load_settings,
    ifNull(nullIf(JSONExtractString(c.w, 'transport'), ''), 'kafka') AS transport,
    JSONExtractString(c.w, 'content', 'source') AS content_source,
    JSONExtractString(c.w, 'content', 'format') AS format,
    mapFilter(
        (_, text) -> text NOT IN ('null', '[]', '{}', ''),
        mapFromArrays(
            arrayMap(x -> x.1, JSONExtractKeysAndValuesRaw(c.w, 'content')),
            arrayMap(x -> trim(BOTH '"' FROM x.2), JSONExtractKeysAndValuesRaw(c.w, 'content'))
        )
    ) AS content_settings,
    mapFilter(
        (_, share) -> share > 0,
        CAST(
            arrayMap(
                name -> (name, JSONExtractFloat(c.w, 'faults', name)),
                ['late', 'duplicate', 'undecodable', 'impossible']
            ),
            'Map(String, Float64)'
        )
    ) AS faults,
    JSONExtract(c.w, 'kills', 'Array(Tuple(target String, at_s UInt32, signal String, for_s UInt32))') AS kills,
    ifNull(r.warm_up_s, JSONExtractInt(c.w, 'phases', 'warm_up_s')) AS warm_up_s,
    JSONExtractInt(c.w, 'phases', 'measure_s') AS measure_s,
    JSONExtractInt(c.w, 'judgement', 'deadline_ms') AS deadline_ms,
    JSONExtractInt(c.w, 'judgement', 'give_up_ms') AS give_up_ms,
    JSONExtract(c.w, 'windows', 'Map(String, Int64)') AS windows,
    n.partitions AS partitions,
    JSONExtractString(c.request, 'environment', 'host') AS host,
    JSONExtractString(c.request, 'environment', 'processor') AS processor,
    JSONExtractFloat(c.request, 'environment', 'cores') AS cores,
    JSONExtractInt(c.request, 'environment', 'memory_bytes') AS machine_memory_bytes,
    JSONExtractString(c.request, 'environment', 'system') AS system,
    JSONExtractString(c.request, 'environment', 'java') AS java,
    JSONExtractString(c.request, 'environment', 'tidegauge') AS revision,
    JSONExtract(c.request, 'environment', 'packages', 'Map(String, String)') AS packages,
    JSONExtractString(c.request, 'suite', 'name') AS suite,
    g.acknowledged AS input_records,
    -- A run that ended early was measured for less time than planned.
    nullIf(
        if(b.is_whole, dateDiff('millisecond', b.measured_from, b.measured_until), t.sending_ms), 0
    ) / 1000 AS measured_for_s,
    g.acknowledged / measured_for_s AS input_per_second,
    g.send_delay_p50_ms AS send_delay_p50_ms,
    g.send_delay_p99_ms AS send_delay_p99_ms,
    g.send_delay_max_ms AS send_delay_max_ms,
    l.measured_outputs AS measured_outputs,
    l.measured_outputs / measured_for_s AS outputs_per_second,
    l.min_ms AS min_ms,
    l.{percentile}_ms AS {percentile}_ms,
    l.max_ms AS max_ms,
    l.mean_ms AS mean_ms,
    l.middle_ms AS middle_ms,
    l.of_mean_p50_ms AS of_mean_p50_ms,
    l.of_mean_p99_ms AS of_mean_p99_ms,
    l.event_time_p50_ms AS event_time_p50_ms,
    l.event_time_p99_ms AS event_time_p99_ms,
    l.visible_p50_ms AS visible_p50_ms,
    l.visible_p99_ms AS visible_p99_ms,
    k.stage_before AS stage_before,
    k.p50_cost_ms AS p50_cost_ms,
    k.p99_cost_ms AS p99_cost_ms,
    f.floor_p50_ms AS floor_p50_ms,
    f.floor_p99_ms AS floor_p99_ms,
    v.exact AS exact,
    v.wrong AS wrong,
    v.missing AS missing,
    v.late AS late,
    v.duplicate AS duplicate,
    v.unexpected AS unexpected,
    q.lag_records AS lag_records,
    d.p50_ms AS scheduler_delay_p50_ms,
    d.p99_ms AS scheduler_delay_p99_ms,
    u.cpu_cores AS cpu_cores,
    if(
        JSONType(c.request, 'interleaved') = 'Object',
        NULL,
        u.cpu_seconds * ifNull(nullIf(o.missing, 0), 1) * 1e6 / nullIf(g.acknowledged, 0)
    ) AS core_seconds_per_million_records,
    u.memory_bytes AS memory_bytes,
    u.heap_bytes AS heap_bytes,
    u.heap_min_bytes AS heap_min_bytes,
    u.heap_mean_bytes AS heap_mean_bytes,
    u.gc_seconds AS gc_seconds,
    u.jit_seconds AS jit_seconds,
    if(mapContains(j.heap, c.pipeline), j.heap[c.pipeline].limited, NULL) AS heap_limited,
    j.machine_cpu_share AS machine_cpu_share,
    o.cpu_pressure AS cpu_pressure,
    o.stolen_cores / nullIf(cores, 0) AS steal_share,
    j.saturated AS saturated,
    j.waited AS waited,
    m.sustainable_rate_per_second AS sustainable_rate_per_second
FROM (SELECT *, stage FROM cells ARRAY JOIN of_pipeline AS stage) AS c
LEFT JOIN tidegauge.runs AS r ON r.run_id = c.run_id
LEFT JOIN tidegauge.run_stages AS s ON s.run_id = c.run_id AND s.stage = c.stage
LEFT JOIN prepared AS n ON n.run_id = c.run_id
LEFT JOIN phases AS b ON b.run_id = c.run_id
LEFT JOIN
(
    SELECT
        run_id,
        toNullable(acknowledged) AS acknowledged,
        toNullable(send_delay_p50_ms) AS send_delay_p50_ms,
        toNullable(send_delay_p99_ms) AS send_delay_p99_ms,
        toNullable(send_delay_max_ms) AS send_delay_max_ms
    FROM tidegauge.generator_summary
    WHERE phase = 'measure'
) AS g ON g.run_id = c.run_id
LEFT JOIN sending AS t ON t.run_id = c.run_id
LEFT JOIN latency AS l
    ON l.run_id = c.run_id AND l.pipeline = c.pipeline AND l.stage = c.stage
LEFT JOIN
(
    SELECT
        run_id,
        pipeline,
        stage,
        toNullable(exact) AS exact,
        toNullable(wrong) AS wrong,
        toNullable(missing) AS missing,
        toNullable(late) AS late,
        toNullable(duplicate) AS duplicate,
        toNullable(unexpected) AS unexpected
    FROM tidegauge.verdict_totals
    WHERE phase = 'measure'
) AS v ON v.run_id = c.run_id AND v.pipeline = c.pipeline AND v.stage = c.stage
LEFT JOIN behind AS q
    ON q.run_id = c.run_id AND q.pipeline = c.pipeline AND q.stage = c.stage
LEFT JOIN
(
    SELECT run_id, pipeline, toNullable(s.p50_ms) AS p50_ms, toNullable(s.p99_ms) AS p99_ms
    FROM tidegauge.scheduler_delays AS s
) AS d ON d.run_id = c.run_id AND d.pipeline = c.pipeline
LEFT JOIN used AS u ON u.run_id = c.run_id AND u.pipeline = c.pipeline
LEFT JOIN extrapolated AS o ON o.run_id = c.run_id
LEFT JOIN judged AS j ON j.run_id = c.run_id
LEFT JOIN
(
    SELECT run_id, pipeline, stage, stage_before, p50_cost_ms, p99_cost_ms
    FROM tidegauge.stage_cost
    WHERE phase = 'measure' AND definition = 'latest' AND stage_before IS NOT NULL
) AS k ON k.run_id = c.run_id AND k.pipeline = c.pipeline AND k.stage = c.stage
LEFT JOIN
(
    SELECT run_id, toNullable(p50_ms) AS floor_p50_ms, toNullable(p99_ms) AS floor_p99_ms
    FROM tidegauge.run_floor
) AS f ON f.run_id = c.run_id
LEFT JOIN
(
    SELECT
        run_id,
        pipeline,
        argMax(s.rate_per_second, s.time) AS sustainable_rate_per_second
    FROM tidegauge.sustainable_rates AS s
    GROUP BY run_id, pipeline
) AS m ON m.run_id = c.run_id AND m.pipeline = c.pipeline
COMMENT 'One row per run, pipeline and stage: settings of workload, pipeline and machine, and every figure of the measured phase. Engine settings are text, by name: settings[''heap_mb'']';

ALTER TABLE tidegauge.figures
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN valid 'Whether the run is valid; NULL until it is concluded',
    COMMENT COLUMN clean 'Whether every output of the run was exact',
    COMMENT COLUMN invalid_reasons 'Why it is not valid, one sentence each',
    COMMENT COLUMN steady 'Whether all stages were steady in the measured phase; NULL if unknown',
    COMMENT COLUMN moving 'Figures that were not steady, one sentence each',
    COMMENT COLUMN disturbed 'Whether anything but the pipelines caused late seconds; NULL if unknown',
    COMMENT COLUMN step_of 'The run whose search this run is a step of; empty otherwise',
    COMMENT COLUMN workload 'Name of the workload',
    COMMENT COLUMN domain 'Name of the domain',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN beside 'The other pipelines of the run; empty if it had one',
    COMMENT COLUMN engine 'Engine of the pipeline',
    COMMENT COLUMN engine_version 'Version of the engine, as it reported it',
    COMMENT COLUMN workers 'Number of workers; NULL if not set',
    COMMENT COLUMN topology 'independent, chained or via-topics: how the stages read each other; empty for a watch',
    COMMENT COLUMN mode 'Mode of the engine',
    COMMENT COLUMN implementation 'Which code runs the stages: built-in, customised or a name of the domain',
    COMMENT COLUMN trigger_interval_ms 'Time between micro-batches, milliseconds; NULL if the engine has none',
    COMMENT COLUMN settings 'Every setting of the pipeline, as text by name',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN kind 'Kind of the stage',
    COMMENT COLUMN position 'Position of the stage in its domain, from 1',
    COMMENT COLUMN window_s 'Size of the window of the stage, seconds of event time; NULL without one',
    COMMENT COLUMN rate_per_second 'Rate of the load, records per second: as requested, or as found by a search',
    COMMENT COLUMN load_shape 'Shape of the load',
    COMMENT COLUMN load_settings 'Every setting of the load, as text by name, as requested',
    COMMENT COLUMN transport 'How records arrive: kafka, or through the gateway by tcp, udp or zeromq',
    COMMENT COLUMN content_source 'Where the content of the records comes from',
    COMMENT COLUMN format 'Format of the records',
    COMMENT COLUMN content_settings 'Every setting of the content, as text by name',
    COMMENT COLUMN faults 'Share of the input records by kind of fault; empty without faults',
    COMMENT COLUMN kills 'The faults: what was killed, terminated, paused or disturbed (`signal`; a pause took `for_s` seconds), and how many seconds after the measured phase began',
    COMMENT COLUMN warm_up_s 'Duration of the warm-up, seconds',
    COMMENT COLUMN measure_s 'Planned duration of the measured phase, seconds',
    COMMENT COLUMN deadline_ms 'An output later than this after its latest input is late, milliseconds',
    COMMENT COLUMN give_up_ms 'An output that has not arrived by then is missing, milliseconds',
    COMMENT COLUMN windows 'Sizes of windows that differ from those of the domain, seconds by name',
    COMMENT COLUMN partitions 'Partitions of the input topic with the most',
    COMMENT COLUMN host 'Name of the machine',
    COMMENT COLUMN processor 'Its processor',
    COMMENT COLUMN cores 'Cores that could be used: its own, or those of a quota or an affinity',
    COMMENT COLUMN machine_memory_bytes 'Its memory, or the limit, bytes',
    COMMENT COLUMN system 'Its operating system',
    COMMENT COLUMN java 'Version of Java',
    COMMENT COLUMN revision 'Version of Tidegauge',
    COMMENT COLUMN packages 'Versions of Python packages by name',
    COMMENT COLUMN suite 'The suite that requested the run; empty without one',
    COMMENT COLUMN input_records 'Records that the broker acknowledged',
    COMMENT COLUMN measured_for_s 'Duration of the measured phase until the run ended, seconds; NULL for a watch',
    COMMENT COLUMN input_per_second 'Records that the broker acknowledged, per second',
    COMMENT COLUMN send_delay_p50_ms 'Median delay between scheduled and actual send time, milliseconds',
    COMMENT COLUMN send_delay_p99_ms '99th percentile of the delay between scheduled and actual send time, milliseconds',
    COMMENT COLUMN send_delay_max_ms 'Longest delay between scheduled and actual send time, milliseconds',
    COMMENT COLUMN measured_outputs 'Number of outputs with a latency; NULL, as all figures of latency, for a watch whose timestamps cannot measure it',
    COMMENT COLUMN outputs_per_second 'The same per second',
    COMMENT COLUMN min_ms 'Lowest latency, milliseconds',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds',
    COMMENT COLUMN middle_ms 'Mean latency of the middle half of the outputs, milliseconds',
    COMMENT COLUMN of_mean_p50_ms 'Median latency from the mean time of the inputs, milliseconds',
    COMMENT COLUMN of_mean_p99_ms '99th percentile of the same',
    COMMENT COLUMN event_time_p50_ms 'Median latency from the event time, milliseconds',
    COMMENT COLUMN event_time_p99_ms '99th percentile of the same',
    COMMENT COLUMN visible_p50_ms 'Median latency until readers of committed records have an output, milliseconds; NULL without transactions',
    COMMENT COLUMN visible_p99_ms '99th percentile of the same',
    COMMENT COLUMN stage_before 'Nearest measured upstream stage, in chains; NULL otherwise',
    COMMENT COLUMN p50_cost_ms 'What the stage adds to the median latency of stage_before, milliseconds',
    COMMENT COLUMN p99_cost_ms 'What it adds to the 99th percentile',
    COMMENT COLUMN floor_p50_ms 'Median latency of a plain copy measured before the run, milliseconds; NULL without a floor',
    COMMENT COLUMN floor_p99_ms '99th percentile of the same',
    COMMENT COLUMN exact 'Outputs that are right and in time',
    COMMENT COLUMN wrong 'Outputs that differ from what the inputs imply',
    COMMENT COLUMN missing 'Expected outputs that had not arrived when waiting ended',
    COMMENT COLUMN late 'Right outputs after the deadline',
    COMMENT COLUMN duplicate 'Outputs that were published again',
    COMMENT COLUMN unexpected 'Outputs that no input implies',
    COMMENT COLUMN lag_records 'Largest number of input records that the stage had not read; NULL if not reported',
    COMMENT COLUMN scheduler_delay_p50_ms 'Median scheduler delay of the tasks of the pipeline, milliseconds; NULL if it reports none',
    COMMENT COLUMN scheduler_delay_p99_ms '99th percentile of the same',
    COMMENT COLUMN cpu_cores 'Mean number of cores that the pipeline used',
    COMMENT COLUMN core_seconds_per_million_records 'CPU time of the pipeline per million input records, seconds',
    COMMENT COLUMN memory_bytes 'Highest resident memory of the pipeline, bytes',
    COMMENT COLUMN heap_bytes 'Highest used heap of its JVMs, bytes',
    COMMENT COLUMN heap_min_bytes 'Lowest used heap of its JVMs, bytes',
    COMMENT COLUMN heap_mean_bytes 'Mean used heap of its JVMs over time, bytes',
    COMMENT COLUMN gc_seconds 'Time of garbage collection, seconds; NULL without a JVM',
    COMMENT COLUMN jit_seconds 'Time of the JIT compilers, seconds; NULL without a JVM',
    COMMENT COLUMN heap_limited 'Whether the size of its heap limited the pipeline; NULL without a JVM',
    COMMENT COLUMN machine_cpu_share 'Share of the CPU time of the machine that was used, 0 to 1',
    COMMENT COLUMN cpu_pressure 'Share of the time in which a task waited for a core, 0 to 1; NULL if unknown',
    COMMENT COLUMN steal_share 'Share of the CPU time of the machine that the host gave to other machines, 0 to 1; NULL if unknown',
    COMMENT COLUMN saturated 'Whether the machine had no room left; NULL if unknown',
    COMMENT COLUMN waited 'Parts of the stack that waited for a core',
    COMMENT COLUMN sustainable_rate_per_second 'Rate that a search before the run found, records per second; NULL without one';
