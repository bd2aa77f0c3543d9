-- Latency of a watch by partition and by one field of its records, of an interleaved run by second of
-- input, and the view for queries.

CREATE TABLE IF NOT EXISTS tidegauge.results_slices
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Name of the pipeline or of the watch'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'Its stage'
        CODEC(ZSTD(1)),
    dimension LowCardinality(String)
        COMMENT 'What the outputs are grouped by: of a watch partition, or a path into the record; of an interleaved run input_second'
        CODEC(ZSTD(1)),
    value LowCardinality(String)
        COMMENT 'TOPIC-PARTITION of the output, or the text of the field, (others) beyond the bound; or the second in which the latest input was appended (epoch)'
        CODEC(ZSTD(1)),
    minute DateTime64(3, 'UTC')
        COMMENT 'Minute of output time'
        CODEC(Delta(8), ZSTD(1)),
    latency_ms Int64
        COMMENT 'Latency, milliseconds; may be negative'
        CODEC(T64, ZSTD(1)),
    `count` UInt64
        COMMENT 'How many outputs had it'
        CODEC(T64, ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, pipeline, stage, dimension, value, minute, latency_ms)
COMMENT 'Exact count of every millisecond of latency of a part of the outputs of a watch or of an interleaved run, per minute of output time. Counts add up';

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
