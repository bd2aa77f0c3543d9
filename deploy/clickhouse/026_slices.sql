-- Latency of a watch by partition and by one field of its records, of an interleaved run by second of
-- input.

CREATE OR REPLACE VIEW tidegauge.latency_by_slice AS
WITH quantilesExactWeighted({levels})(latency_ms, r.count) AS percentiles_ms
SELECT
    run_id,
    pipeline,
    stage,
    dimension,
    value,
    sum(r.count) AS count,
    min(latency_ms) AS min_ms,
    percentiles_ms[{place}] AS {percentile}_ms,
    max(latency_ms) AS max_ms,
    sum(latency_ms * toInt64(r.count)) / sum(r.count) AS mean_ms
FROM tidegauge.results_slices AS r
GROUP BY run_id, pipeline, stage, dimension, value
COMMENT 'Latency of a watch by output partition and by the field that it names, of an interleaved run by second of the latest input, milliseconds';

ALTER TABLE tidegauge.latency_by_slice
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN dimension 'partition, or the field that the watch names; input_second of an interleaved run',
    COMMENT COLUMN value 'The partition, the value of the field, or the second (epoch)',
    COMMENT COLUMN count 'Number of outputs',
    COMMENT COLUMN min_ms 'Lowest latency, milliseconds',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds';
