-- Runs and their resource usage.

CREATE OR REPLACE VIEW tidegauge.resources_summary AS
SELECT
    run_id,
    service,
    pipeline,
    sum(r.cpu_seconds) / sum(interval_s) AS mean_cpu_cores,
    sum(r.cpu_seconds) AS cpu_seconds,
    max(memory_bytes) AS max_memory_bytes,
    max(heap_used_bytes) AS max_heap_used_bytes,
    sum(r.gc_seconds) AS gc_seconds,
    sum(r.jit_seconds) AS jit_seconds,
    sum(r.run_queue_wait_seconds) AS run_queue_wait_seconds,
    sum(r.read_bytes) AS read_bytes,
    sum(r.written_bytes) AS written_bytes,
    max(open_files) AS max_open_files
FROM tidegauge.results_resources AS r
GROUP BY run_id, service, pipeline
COMMENT 'Resources used by each service per run, over all sampled intervals';

ALTER TABLE tidegauge.resources_summary
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN service 'The service, or the machine',
    COMMENT COLUMN pipeline 'The pipeline whose processes these are; empty for services',
    COMMENT COLUMN mean_cpu_cores 'Mean number of cores used',
    COMMENT COLUMN cpu_seconds 'CPU time, seconds',
    COMMENT COLUMN max_memory_bytes 'Highest resident memory, bytes',
    COMMENT COLUMN max_heap_used_bytes 'Highest used heap, bytes; NULL without a JVM',
    COMMENT COLUMN gc_seconds 'Time of garbage collection, seconds; NULL without a JVM',
    COMMENT COLUMN jit_seconds 'Time of the JIT compilers, seconds; NULL without a JVM',
    COMMENT COLUMN run_queue_wait_seconds 'Time in which threads waited for a core, seconds',
    COMMENT COLUMN read_bytes 'Bytes read from disks',
    COMMENT COLUMN written_bytes 'Bytes written to disks',
    COMMENT COLUMN max_open_files 'Highest number of open files';

CREATE OR REPLACE VIEW tidegauge.machine_summary AS
SELECT
    run_id,
    sum(r.cpu_seconds) / sum(r.interval_s) AS mean_cpu_cores,
    avg(load_1m) AS mean_load,
    min(frequency_mhz) AS min_frequency_mhz,
    sum(r.steal_seconds) AS stolen_seconds,
    sum(r.cpu_pressure_seconds) / sum(r.interval_s) AS cpu_pressure,
    sum(r.io_pressure_seconds) / sum(r.interval_s) AS io_pressure,
    sum(r.memory_pressure_seconds) / sum(r.interval_s) AS memory_pressure,
    sum(r.received_bytes) AS received_bytes,
    sum(r.sent_bytes) AS sent_bytes
FROM tidegauge.results_resources AS r
WHERE service = 'machine'
GROUP BY run_id
COMMENT 'The machine during a run, including other processes. Pressure: share of the time in which some task waited';

ALTER TABLE tidegauge.machine_summary
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN mean_cpu_cores 'Mean number of cores in use, by any process',
    COMMENT COLUMN mean_load 'Mean load average of one minute',
    COMMENT COLUMN min_frequency_mhz 'Lowest clock rate of the processor, MHz',
    COMMENT COLUMN stolen_seconds 'CPU time that the host gave to other machines, seconds',
    COMMENT COLUMN cpu_pressure 'Share of the time in which a task waited for a core',
    COMMENT COLUMN io_pressure 'Share of the time in which a task waited for a disk',
    COMMENT COLUMN memory_pressure 'Share of the time in which a task waited for memory',
    COMMENT COLUMN received_bytes 'Bytes received over the network',
    COMMENT COLUMN sent_bytes 'Bytes sent over the network';

CREATE OR REPLACE VIEW tidegauge.runs AS
SELECT
    l.run_id AS run_id,
    l.requested_at AS requested_at,
    l.workload AS workload,
    l.load_name AS load_name,
    l.pipelines AS pipelines,
    l.warm_up_at AS warm_up_at,
    l.measure_at AS measure_at,
    l.cool_down_at AS cool_down_at,
    l.drain_at AS drain_at,
    l.concluded_at AS concluded_at,
    l.phase AS phase,
    CAST(l.concluded_at IS NOT NULL AS Bool) AS concluded,
    if(l.concluded_at IS NULL, NULL, if(c.conclusions > 0, c.valid, l.valid)) AS valid,
    CAST(if(l.concluded_at IS NULL, NULL, if(c.conclusions > 0, c.clean, l.clean)) AS Nullable(Bool)) AS clean,
    if(c.conclusions > 0, c.invalid_reasons, l.invalid_reasons) AS invalid_reasons,
    c.steady AS steady,
    c.warm_up_s AS warm_up_s,
    c.moving AS moving,
    c.timestamps AS timestamps,
    l.failures AS failures,
    l.step_of AS step_of
FROM
(
    WITH
        anyIf(detail, event IN ('run_requested', 'watch_begun')) AS request,
        anyIf(detail, event = 'concluded') AS conclusion,
        JSONExtractFloat(request, 'workload', 'load', 'rate_per_second') AS rate,
        JSONExtractString(request, 'domain', 'name') AS domain
    SELECT
        run_id,
        ifNull(minOrNullIf(e.time, event IN ('run_requested', 'watch_begun')), min(e.time)) AS requested_at,
        JSONExtractString(request, 'workload', 'name') AS workload,
        -- Without a rate that a search finds, or a fraction of it: that varies from run to run.
        concat(
            workload,
            if(
                rate > 0
                    AND JSONType(request, 'workload', 'search') != 'Object'
                    AND JSONExtractFloat(request, 'workload', 'sustainable_share') = 0,
                concat(' at ', toString(rate), '/s'),
                ''
            ),
            if(domain NOT IN ('', 'traffic'), concat(' of ', domain), '')
        ) AS load_name,
        arrayMap(
            p -> JSONExtractString(p, 'name'), JSONExtractArrayRaw(request, 'pipelines')
        ) AS pipelines,
        JSONExtractString(request, 'step_of') AS step_of,
        minOrNullIf(e.time, event = 'phase_started' AND e.phase = 'warm_up') AS warm_up_at,
        minOrNullIf(e.time, event = 'phase_started' AND e.phase = 'measure') AS measure_at,
        minOrNullIf(e.time, event = 'phase_started' AND e.phase = 'cool_down') AS cool_down_at,
        minOrNullIf(e.time, event = 'phase_started' AND e.phase = 'drain') AS drain_at,
        minOrNullIf(e.time, event = 'concluded') AS concluded_at,
        argMaxIf(e.phase, (e.time, e._offset), event = 'phase_started') AS phase,
        JSONExtractBool(conclusion, 'valid') AS valid,
        JSONExtractBool(conclusion, 'clean') AS clean,
        JSONExtract(conclusion, 'invalid_reasons', 'Array(String)') AS invalid_reasons,
        groupArrayIf(100)(
            concat(producer, ': ', JSONExtractString(detail, 'reason')),
            event IN ('failed', 'run_refused')
        ) AS failures
    FROM tidegauge.results_lifecycle AS e
    WHERE run_id != ''
    GROUP BY run_id
) AS l
LEFT JOIN
(
    SELECT
        run_id,
        count() AS conclusions,
        argMax(k.valid, (k.time, k._offset)) AS valid,
        argMax(JSONExtractBool(k.detail, 'clean'), (k.time, k._offset)) AS clean,
        argMax(k.invalid_reasons, (k.time, k._offset)) AS invalid_reasons,
        argMax(JSONExtract(k.detail, 'warm_up', 'steady', 'Nullable(Bool)'), (k.time, k._offset))
            AS steady,
        argMax(JSONExtract(k.detail, 'warm_up', 'seconds', 'Nullable(Int64)'), (k.time, k._offset))
            AS warm_up_s,
        argMax(JSONExtract(k.detail, 'warm_up', 'moving', 'Array(String)'), (k.time, k._offset))
            AS moving,
        argMax(JSONExtractString(k.detail, 'watch', 'times'), (k.time, k._offset)) AS timestamps
    FROM tidegauge.results_conclusions AS k
    WHERE kind = 'run'
    GROUP BY run_id
) AS c ON c.run_id = l.run_id
COMMENT 'One row per run: the request (load_name: the workload, with its rate if that is constant, and its domain if that is not traffic), the start of each phase, whether the run is valid, whether every output was exact (clean), and whether it was steady in the measured phase (moving: the figures that were not)';

ALTER TABLE tidegauge.runs
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN workload 'Name of the workload',
    COMMENT COLUMN load_name 'The workload, with its rate if that is constant, and its domain if that is not traffic',
    COMMENT COLUMN pipelines 'Names of its pipelines',
    COMMENT COLUMN warm_up_at 'Start of the warm-up',
    COMMENT COLUMN measure_at 'Start of the measured phase',
    COMMENT COLUMN cool_down_at 'Start of the cool-down',
    COMMENT COLUMN drain_at 'Start of the wait for the last outputs',
    COMMENT COLUMN concluded_at 'When it was concluded',
    COMMENT COLUMN phase 'Phase that started last',
    COMMENT COLUMN concluded 'Whether it is concluded',
    COMMENT COLUMN valid 'Whether it is valid; NULL until it is concluded',
    COMMENT COLUMN clean 'Whether every output was exact; NULL until it is concluded',
    COMMENT COLUMN invalid_reasons 'Why it is not valid, one sentence each',
    COMMENT COLUMN steady 'Whether all stages were steady in the measured phase; NULL if unknown',
    COMMENT COLUMN warm_up_s 'Duration of the warm-up, seconds',
    COMMENT COLUMN moving 'Figures that were not steady, one sentence each',
    COMMENT COLUMN timestamps 'Of a watch: the clocks that its timestamps come from, or why these cannot measure latency; empty for a load, whose timestamps are LogAppendTime',
    COMMENT COLUMN failures 'What failed, one sentence each',
    COMMENT COLUMN step_of 'The run whose search this run is a step of; empty otherwise';

CREATE OR REPLACE VIEW tidegauge.latest_run AS
SELECT argMax(e.run_id, (e.time, e._offset)) AS run_id
FROM tidegauge.results_lifecycle AS e
WHERE e.event = 'concluded'
COMMENT 'The most recently concluded run: one row';

ALTER TABLE tidegauge.latest_run
    COMMENT COLUMN run_id 'The run';

CREATE OR REPLACE VIEW tidegauge.pipeline_progress AS
SELECT
    run_id,
    pipeline,
    stage,
    p.time AS time,
    batch_id,
    input_rows,
    input_rows_per_second,
    processed_rows_per_second,
    batch_duration_ms,
    state_rows,
    state_bytes,
    watermark,
    dateDiff('millisecond', watermark, p.time) AS watermark_lag_ms,
    lag_records,
    if(
        empty(
            arrayFilter(
                source -> JSONHas(source, 'metrics', 'maxOffsetsBehindLatest'),
                JSONExtractArrayRaw(detail, 'sources')
            )
        ),
        NULL,
        arrayMax(
            source -> toInt64OrZero(JSONExtractString(source, 'metrics', 'maxOffsetsBehindLatest')),
            JSONExtractArrayRaw(detail, 'sources')
        )
    ) AS max_records_behind
FROM tidegauge.results_pipeline AS p
WHERE stage != ''
COMMENT 'Progress reports of every stage: rows since the previous report, state, watermark lag, and records not read yet (lag_records: of all inputs; max_records_behind: of one partition; NULL if the pipeline does not report it)';

ALTER TABLE tidegauge.pipeline_progress
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN time 'When the progress was reported',
    COMMENT COLUMN batch_id 'Number of the micro-batch',
    COMMENT COLUMN input_rows 'Rows read since the previous report',
    COMMENT COLUMN input_rows_per_second 'Rows that arrived per second, as the engine reports it',
    COMMENT COLUMN processed_rows_per_second 'Rows processed per second, as the engine reports it',
    COMMENT COLUMN batch_duration_ms 'Duration of the micro-batch, milliseconds',
    COMMENT COLUMN state_rows 'Rows in the state of the stage',
    COMMENT COLUMN state_bytes 'Size of the state, bytes',
    COMMENT COLUMN watermark 'Event time before which no further records are expected',
    COMMENT COLUMN watermark_lag_ms 'Time from the watermark to the report, milliseconds',
    COMMENT COLUMN lag_records 'Records of all inputs that were not read yet',
    COMMENT COLUMN max_records_behind 'The same of the partition with the most; NULL if not reported';

CREATE OR REPLACE VIEW tidegauge.threshold_results AS
SELECT
    run_id,
    k.time AS time,
    JSONExtractString(row, 'threshold') AS threshold,
    JSONExtractString(row, 'pipeline') AS pipeline,
    JSONExtractString(row, 'stage') AS stage,
    JSONExtract(row, 'value', 'Nullable(Float64)') AS value,
    JSONExtractFloat(row, 'limit') AS threshold_limit,
    CAST(JSONExtractBool(row, 'passed') AS Bool) AS passed
FROM
(
    SELECT run_id, time, detail
    FROM tidegauge.results_conclusions
    WHERE kind = 'run'
    ORDER BY run_id, time DESC, _offset DESC
    LIMIT 1 BY run_id
) AS k
ARRAY JOIN JSONExtractArrayRaw(k.detail, 'thresholds') AS row
COMMENT 'One row per run, threshold, pipeline and stage: the figure, its limit, and whether it passed';

ALTER TABLE tidegauge.threshold_results
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When the run was concluded',
    COMMENT COLUMN threshold 'The threshold as written',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN value 'The figure; NULL if it is unknown',
    COMMENT COLUMN threshold_limit 'Its limit',
    COMMENT COLUMN passed 'Whether the figure is within the limit';

CREATE OR REPLACE VIEW tidegauge.not_judged AS
SELECT
    run_id,
    k.time AS time,
    JSONExtractString(row, 'topic') AS topic,
    JSONExtractString(row, 'kind') AS kind,
    JSONExtractString(row, 'reason') AS reason,
    JSONExtractUInt(row, 'records') AS records,
    JSONExtractInt(row, 'partition') AS partition,
    JSONExtractInt(row, 'offset') AS offset
FROM
(
    SELECT run_id, time, detail
    FROM tidegauge.results_conclusions
    WHERE kind = 'run'
    ORDER BY run_id, time DESC, _offset DESC
    LIMIT 1 BY run_id
) AS k
ARRAY JOIN JSONExtractArrayRaw(k.detail, 'watch', 'not_judged') AS row
COMMENT 'Records of watched topics that were not judged: one row per run, topic and reason';

ALTER TABLE tidegauge.not_judged
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When the run was concluded',
    COMMENT COLUMN topic 'The topic',
    COMMENT COLUMN kind 'refused: cannot be evaluated; other_type: not of the watched type; tombstone: without a value; delete: of a deleted row; outside: timestamp before or after the watch; removed: removed before it could be read; unpaired: its input or output may have been removed',
    COMMENT COLUMN reason 'Why they were not judged',
    COMMENT COLUMN records 'Number of records',
    COMMENT COLUMN partition 'Partition of the first of them; -1 if unknown',
    COMMENT COLUMN offset 'Its offset; -1 if unknown';
