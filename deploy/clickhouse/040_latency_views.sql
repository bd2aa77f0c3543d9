-- Latency, from the exact counts. A percentile is the nearest rank: the smallest value such
-- that at least that share of all outputs is at or below it. Nothing is interpolated, sampled or
-- bucketed, so percentiles of any time range are exact. Queries that need no single seconds read the
-- sums per minute, which have about twenty times fewer rows and remain when raw rows expire.

CREATE OR REPLACE VIEW tidegauge.latency_summary AS
WITH
    quantilesExactWeighted({levels})(latency_ms, r.count) AS percentiles_ms,
    sumMap([latency_ms], [r.count]) AS by_latency
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    sum(r.count) AS count,
    sumIf(r.count, latency_ms < 0) AS negative,
    min(latency_ms) AS min_ms,
    percentiles_ms[{place}] AS {percentile}_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms,
    -- of each latency the outputs whose rank is in the middle half
    arraySum(
        (latency, outputs, upto) -> latency * greatest(
            0, least(toFloat64(upto), 0.75 * count) - greatest(upto - toFloat64(outputs), 0.25 * count)
        ),
        by_latency.1,
        by_latency.2,
        arrayCumSum(by_latency.2)
    ) / (0.5 * count) AS middle_ms
FROM tidegauge.latency_minutes AS r
GROUP BY run_id, pipeline, stage, definition, phase
COMMENT 'Latency of every run, pipeline, stage, definition and phase, milliseconds';

ALTER TABLE tidegauge.latency_summary
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN definition 'Definition of latency: latest, mean, event_time, window_time, visible or processing_time (schemas/protocol.py)',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN count 'Number of outputs',
    COMMENT COLUMN negative 'Number of outputs whose latency is negative: clocks differ, or they were published before their inputs',
    COMMENT COLUMN min_ms 'Lowest latency, milliseconds',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds',
    COMMENT COLUMN middle_ms 'Mean latency of the middle half of the outputs, milliseconds';

CREATE OR REPLACE VIEW tidegauge.latency_by_minute AS
WITH quantilesExactWeighted({levels})(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    minute,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[{place}] AS {percentile}_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.latency_minutes AS r
GROUP BY run_id, pipeline, stage, definition, phase, minute
COMMENT 'Latency per minute of output time, milliseconds; also of runs whose per-second rows have expired';

ALTER TABLE tidegauge.latency_by_minute
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN definition 'Definition of latency: latest, mean, event_time, window_time, visible or processing_time (schemas/protocol.py)',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN minute 'Minute of output time, as its start',
    COMMENT COLUMN count 'Number of outputs',
    COMMENT COLUMN min_ms 'Lowest latency, milliseconds',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds';

CREATE OR REPLACE VIEW tidegauge.latency_by_second AS
WITH quantilesExactWeighted({levels})(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    second,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[{place}] AS {percentile}_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.results_latency AS r
GROUP BY run_id, pipeline, stage, definition, phase, second
COMMENT 'Latency per second of output time, milliseconds';

ALTER TABLE tidegauge.latency_by_second
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN definition 'Definition of latency: latest, mean, event_time, window_time, visible or processing_time (schemas/protocol.py)',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN second 'Second of output time, as its start',
    COMMENT COLUMN count 'Number of outputs',
    COMMENT COLUMN min_ms 'Lowest latency, milliseconds',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds';

CREATE OR REPLACE VIEW tidegauge.stage_cost AS
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    nullIf(before, '') AS stage_before,
    p50_ms,
    p99_ms,
    if(before = '', NULL, p50_ms - p50s_ms[indexOf(stages, before)]) AS p50_cost_ms,
    if(before = '', NULL, p99_ms - p99s_ms[indexOf(stages, before)]) AS p99_cost_ms
FROM
(
    SELECT
        m.run_id AS run_id,
        m.pipeline AS pipeline,
        m.stage AS stage,
        m.definition AS definition,
        m.phase AS phase,
        m.p50_ms AS p50_ms,
        m.p99_ms AS p99_ms,
        m.stages AS stages,
        m.p50s_ms AS p50s_ms,
        m.p99s_ms AS p99s_ms,
        arrayFirst(name -> has(m.stages, name), r.made_of) AS before
    FROM
    (
        SELECT run_id, pipeline, definition, phase, stages, p50s_ms, p99s_ms, stage, p50_ms, p99_ms
        FROM
        (
            SELECT
                run_id,
                pipeline,
                definition,
                phase,
                groupArray(toString(s.stage)) AS stages,
                groupArray(s.p50_ms) AS p50s_ms,
                groupArray(s.p99_ms) AS p99s_ms
            FROM tidegauge.latency_summary AS s
            GROUP BY run_id, pipeline, definition, phase
        )
        ARRAY JOIN stages AS stage, p50s_ms AS p50_ms, p99s_ms AS p99_ms
    ) AS m
    LEFT JOIN tidegauge.stage_chains AS r
        ON r.run_id = m.run_id AND r.pipeline = m.pipeline AND r.stage = m.stage
)
COMMENT 'Latency that a stage adds to its nearest measured upstream stage, milliseconds, in pipelines with topology chained or via-topics; NULL if there is no such stage, and in other pipelines';

ALTER TABLE tidegauge.stage_cost
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN definition 'Definition of latency: latest, mean, event_time, window_time, visible or processing_time (schemas/protocol.py)',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN stage_before 'Nearest measured upstream stage; NULL if there is none',
    COMMENT COLUMN p50_ms 'Median latency, milliseconds, nearest rank',
    COMMENT COLUMN p99_ms '99th percentile of the latency, milliseconds, nearest rank',
    COMMENT COLUMN p50_cost_ms 'What the stage adds to the median latency, milliseconds',
    COMMENT COLUMN p99_cost_ms 'What it adds to the 99th percentile, milliseconds';
