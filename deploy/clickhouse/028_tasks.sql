-- How long an engine's scheduler delays tasks, as the engine reports it.

CREATE OR REPLACE VIEW tidegauge.scheduler_delays AS
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
    quantilesExactWeighted(0.5, 0.99)(each.1, toUInt64(each.2)) AS percentiles_ms
SELECT
    run_id,
    p.pipeline AS pipeline,
    sum(each.2) AS tasks,
    percentiles_ms[1] AS p50_ms,
    percentiles_ms[2] AS p99_ms,
    max(each.1) AS max_ms,
    sum(each.1 * each.2) / tasks AS mean_ms
FROM tidegauge.results_pipeline AS p
INNER JOIN phases AS b USING (run_id)
ARRAY JOIN arrayZip(scheduler_delays_ms, scheduler_delay_tasks) AS each
WHERE p.time >= b.measured_from AND p.time < b.measured_until
GROUP BY run_id, p.pipeline
COMMENT 'Scheduler delay of the tasks of a pipeline that ended in the measured phase, time from the launch of a task until its end in which it was neither prepared nor run, nor its result written or fetched';

ALTER TABLE tidegauge.scheduler_delays
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN tasks 'Number of tasks',
    COMMENT COLUMN p50_ms 'Median delay, milliseconds, nearest rank',
    COMMENT COLUMN p99_ms '99th percentile of the delay, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Longest delay, milliseconds; longer ones than 10 s count as 10 s',
    COMMENT COLUMN mean_ms 'Mean delay, milliseconds';
