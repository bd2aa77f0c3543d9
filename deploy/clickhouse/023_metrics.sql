-- Samples of Prometheus series, from the broker and every other configured target, and the lag of
-- every consumer group. Ordered by name first: queries never read all series of a time.

CREATE TABLE IF NOT EXISTS tidegauge.results_metrics
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the endpoint answered'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    source LowCardinality(String)
        COMMENT 'Name of the target that was asked, or kafka for the cluster itself'
        CODEC(ZSTD(1)),
    interval_s Nullable(Float64)
        COMMENT 'Time since the answer before this one, seconds; NULL for the first'
        CODEC(ZSTD(1)),
    name LowCardinality(String)
        COMMENT 'Metric name, as Prometheus has it'
        CODEC(ZSTD(1)),
    labels Map(LowCardinality(String), String)
        COMMENT 'Its labels'
        CODEC(ZSTD(1)),
    kind LowCardinality(String)
        COMMENT 'counter, gauge or untyped'
        CODEC(ZSTD(1)),
    value Float64
        COMMENT 'Its value; a counter grows until its target starts again'
        CODEC(ZSTD(1)),
    increase Nullable(Float64)
        COMMENT 'By how much a counter grew in the interval, never negative; NULL if it is not a counter, or if the previous answer did not have it'
        CODEC(ZSTD(1)),
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
ORDER BY (name, source, `time`)
COMMENT 'One row per sample of a Prometheus series';
