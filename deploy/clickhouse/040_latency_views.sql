-- Latency, from the exact counts. A percentile is the nearest rank: the smallest value that at least
-- that share of all outputs does not exceed. Nothing is interpolated, sampled or bucketed, so the
-- percentiles of any range of time are exact. What needs no single second is answered from the sums
-- per minute, which are some twenty times fewer rows and stay when raw rows expire.

CREATE OR REPLACE VIEW tidegauge.latency_summary AS
WITH quantilesExactWeighted(0.5, 0.9, 0.95, 0.99, 0.999)(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[1] AS p50_ms,
    percentiles_ms[2] AS p90_ms,
    percentiles_ms[3] AS p95_ms,
    percentiles_ms[4] AS p99_ms,
    percentiles_ms[5] AS p999_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.latency_minutes AS r
GROUP BY run_id, pipeline, stage, definition, phase
COMMENT 'Latency of every run, pipeline, stage, definition and phase, milliseconds';

CREATE OR REPLACE VIEW tidegauge.latency_by_minute AS
WITH quantilesExactWeighted(0.5, 0.9, 0.95, 0.99, 0.999)(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    minute,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[1] AS p50_ms,
    percentiles_ms[2] AS p90_ms,
    percentiles_ms[3] AS p95_ms,
    percentiles_ms[4] AS p99_ms,
    percentiles_ms[5] AS p999_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.latency_minutes AS r
GROUP BY run_id, pipeline, stage, definition, phase, minute
COMMENT 'Latency per minute of output time, milliseconds; also of runs whose raw rows expired';

CREATE OR REPLACE VIEW tidegauge.latency_by_second AS
WITH quantilesExactWeighted(0.5, 0.9, 0.95, 0.99, 0.999)(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    second,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[1] AS p50_ms,
    percentiles_ms[2] AS p90_ms,
    percentiles_ms[3] AS p95_ms,
    percentiles_ms[4] AS p99_ms,
    percentiles_ms[5] AS p999_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.results_latency AS r
GROUP BY run_id, pipeline, stage, definition, phase, second
COMMENT 'Latency per second of output time, milliseconds';

CREATE OR REPLACE VIEW tidegauge.stage_cost AS
SELECT
    run_id,
    pipeline,
    stage,
    definition,
    phase,
    lagInFrame(toNullable(toString(stage))) OVER before AS stage_before,
    p50_ms,
    p99_ms,
    p50_ms - lagInFrame(toNullable(p50_ms)) OVER before AS p50_cost_ms,
    p99_ms - lagInFrame(toNullable(p99_ms)) OVER before AS p99_cost_ms
FROM tidegauge.latency_summary
WINDOW before AS
(
    PARTITION BY run_id, pipeline, definition, phase
    ORDER BY indexOf(['ingest', 'parse', 'join', 'tumbling', 'sliding'], toString(stage))
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
COMMENT 'What a stage adds to the stage measured before it in the same pipeline; null for the first';
