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
            toNullable(anyIf(l.p50_ms, definition = 'latest')) AS p50_ms,
            toNullable(anyIf(l.p90_ms, definition = 'latest')) AS p90_ms,
            toNullable(anyIf(l.p95_ms, definition = 'latest')) AS p95_ms,
            toNullable(anyIf(l.p99_ms, definition = 'latest')) AS p99_ms,
            toNullable(anyIf(l.p999_ms, definition = 'latest')) AS p999_ms,
            toNullable(anyIf(l.max_ms, definition = 'latest')) AS max_ms,
            toNullable(anyIf(l.mean_ms, definition = 'latest')) AS mean_ms,
            toNullable(anyIf(l.p50_ms, definition = 'mean')) AS of_mean_p50_ms,
            toNullable(anyIf(l.p99_ms, definition = 'mean')) AS of_mean_p99_ms,
            toNullable(anyIf(l.p50_ms, definition = 'event_time')) AS event_time_p50_ms,
            toNullable(anyIf(l.p99_ms, definition = 'event_time')) AS event_time_p99_ms
        FROM tidegauge.latency_summary AS l
        WHERE phase = 'measure'
        GROUP BY run_id, pipeline, stage
        HAVING countIf(definition = 'latest') > 0
    )
SELECT
    c.run_id AS run_id,
    c.requested_at AS requested_at,
    r.valid AS valid,
    r.clean AS clean,
    r.steady AS steady,
    r.step_of AS step_of,
    JSONExtractString(c.w, 'name') AS workload,
    ifNull(
        nullIf(JSONExtractString(c.request, 'domain', 'name'), ''),
        JSONExtractString(c.w, 'domain')
    ) AS domain,
    c.pipeline AS pipeline,
    JSONExtractString(c.p, 'engine') AS engine,
    n.versions[c.pipeline] AS engine_version,
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
    ifNull(n.rate_per_second, JSONExtractFloat(c.w, 'load', 'rate_per_second')) AS rate_per_second,
    JSONExtractString(c.w, 'load', 'shape') AS load_shape,
    JSONExtractString(c.w, 'content', 'format') AS format,
    ifNull(r.warm_up_s, JSONExtractInt(c.w, 'phases', 'warm_up_s')) AS warm_up_s,
    JSONExtractInt(c.w, 'phases', 'measure_s') AS measure_s,
    JSONExtractInt(c.w, 'judgement', 'deadline_ms') AS deadline_ms,
    JSONExtract(c.w, 'windows', 'Map(String, Int64)') AS windows,
    n.partitions AS partitions,
    JSONExtractString(c.request, 'environment', 'host') AS host,
    JSONExtractString(c.request, 'environment', 'processor') AS processor,
    JSONExtractInt(c.request, 'environment', 'cores') AS cores,
    JSONExtractInt(c.request, 'environment', 'memory_bytes') AS machine_memory_bytes,
    JSONExtractString(c.request, 'environment', 'system') AS system,
    JSONExtractString(c.request, 'environment', 'java') AS java,
    JSONExtractString(c.request, 'environment', 'tidegauge') AS revision,
    JSONExtract(c.request, 'environment', 'packages', 'Map(String, String)') AS packages,
    JSONExtractString(c.request, 'suite', 'name') AS suite,
    g.acknowledged AS input_records,
    -- A run that ended early was measured for less time than planned.
    g.acknowledged / nullIf(
        if(b.is_whole, dateDiff('millisecond', b.measured_from, b.measured_until), t.sending_ms), 0
    ) * 1000 AS input_per_second,
    g.send_delay_p50_ms AS send_delay_p50_ms,
    g.send_delay_p99_ms AS send_delay_p99_ms,
    g.send_delay_max_ms AS send_delay_max_ms,
    l.measured_outputs AS measured_outputs,
    l.min_ms AS min_ms,
    l.p50_ms AS p50_ms,
    l.p90_ms AS p90_ms,
    l.p95_ms AS p95_ms,
    l.p99_ms AS p99_ms,
    l.p999_ms AS p999_ms,
    l.max_ms AS max_ms,
    l.mean_ms AS mean_ms,
    l.of_mean_p50_ms AS of_mean_p50_ms,
    l.of_mean_p99_ms AS of_mean_p99_ms,
    l.event_time_p50_ms AS event_time_p50_ms,
    l.event_time_p99_ms AS event_time_p99_ms,
    v.exact AS exact,
    v.wrong AS wrong,
    v.missing AS missing,
    v.late AS late,
    v.duplicate AS duplicate,
    v.unexpected AS unexpected,
    q.lag_records AS lag_records,
    u.cpu_cores AS cpu_cores,
    if(
        JSONType(c.request, 'interleaved') = 'Object',
        NULL,
        u.cpu_seconds * ifNull(nullIf(o.missing, 0), 1) * 1e6 / nullIf(g.acknowledged, 0)
    ) AS core_seconds_per_million_records,
    u.memory_bytes AS memory_bytes,
    u.heap_bytes AS heap_bytes,
    u.gc_seconds AS gc_seconds,
    u.jit_seconds AS jit_seconds
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
LEFT JOIN used AS u ON u.run_id = c.run_id AND u.pipeline = c.pipeline
LEFT JOIN extrapolated AS o ON o.run_id = c.run_id
COMMENT 'One row per run, pipeline and stage: settings of workload, pipeline and machine, and every figure of the measured phase. Engine settings are text, by name: settings[''heap_mb'']';
