-- CPU time and network traffic of each process of a pipeline.

CREATE OR REPLACE VIEW tidegauge.pipeline_processes AS
WITH
    phases AS
    (
        SELECT
            run_id,
            argMinIf(detail, e.time, e.phase = 'measure') AS measure,
            fromUnixTimestamp64Milli(JSONExtractInt(measure, 'start_ms')) AS measured_from,
            fromUnixTimestamp64Milli(JSONExtractInt(measure, 'end_ms')) AS measured_until
        FROM tidegauge.results_lifecycle AS e
        WHERE event = 'phase_started' AND e.phase = 'measure'
        GROUP BY run_id
    ),
    measured AS
    (
        SELECT r.run_id AS run_id, r.pipeline AS pipeline, r.interval_s AS interval_s,
            r.cpu_seconds_by_process AS cpu_seconds_by_process,
            r.received_bytes_by_process AS received_bytes_by_process,
            r.sent_bytes_by_process AS sent_bytes_by_process
        FROM tidegauge.results_resources AS r
        INNER JOIN phases AS b USING (run_id)
        WHERE r.pipeline != '' AND r.time >= b.measured_from AND r.time < b.measured_until
    )
SELECT
    u.run_id AS run_id,
    u.pipeline AS pipeline,
    u.process AS process,
    u.cpu_seconds AS cpu_seconds,
    u.cpu_seconds / s.sampled_s AS cpu_cores,
    if(s.is_counted, u.received_bytes, NULL) AS received_bytes,
    if(s.is_counted, u.sent_bytes, NULL) AS sent_bytes
FROM
(
    SELECT
        run_id,
        pipeline,
        each.1 AS process,
        sum(each.2) AS cpu_seconds,
        sum(received_bytes_by_process[process]) AS received_bytes,
        sum(sent_bytes_by_process[process]) AS sent_bytes
    FROM measured
    ARRAY JOIN arrayZip(mapKeys(cpu_seconds_by_process), mapValues(cpu_seconds_by_process)) AS each
    GROUP BY run_id, pipeline, process
) AS u
INNER JOIN
(
    SELECT
        run_id,
        pipeline,
        sum(interval_s) AS sampled_s,
        countIf(notEmpty(received_bytes_by_process)) > 0 AS is_counted
    FROM measured
    GROUP BY run_id, pipeline
) AS s USING (run_id, pipeline)
COMMENT 'One row per run, pipeline and process: what each process of a pipeline used in the measured phase. Processes that ended count for the one that waited for them';

ALTER TABLE tidegauge.pipeline_processes
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN process 'Name of its program: java and the main class, python and the module; with a number if there are several; others for those that used least',
    COMMENT COLUMN cpu_seconds 'CPU time, seconds',
    COMMENT COLUMN cpu_cores 'Mean number of cores over the whole phase, also while it did not run',
    COMMENT COLUMN received_bytes 'Bytes received over its TCP connections; not what a connection carried between the last sample and its end; NULL if not known',
    COMMENT COLUMN sent_bytes 'Bytes sent over its TCP connections and acknowledged; likewise';
