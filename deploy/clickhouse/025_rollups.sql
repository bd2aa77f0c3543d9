-- Sums of raw tables. They remain when raw rows expire (services/store/engines/schema.py), and give exactly
-- the same results as a scan of the raw rows: a percentile needs the count of every value, and
-- counts are additive. services/store/engines/schema.py keeps them consistent with the raw tables.

CREATE TABLE IF NOT EXISTS tidegauge.latency_minutes
(
    run_id LowCardinality(String)
        COMMENT 'Run the outputs belong to'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline name'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'A stage of the run, as run_stages lists them'
        CODEC(ZSTD(1)),
    definition LowCardinality(String)
        COMMENT 'latest, mean or event_time'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase in which the latest contributing input was scheduled'
        CODEC(ZSTD(1)),
    minute DateTime('UTC')
        COMMENT 'Minute of output LogAppendTime'
        CODEC(Delta(4), ZSTD(1)),
    latency_ms Int64
        COMMENT 'Latency, milliseconds; may be negative'
        CODEC(Delta(8), ZSTD(1)),
    `count` SimpleAggregateFunction(sum, UInt64)
        COMMENT 'How many outputs had it; sum it, rows of one key are merged later'
        CODEC(T64, ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the counts were projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset SimpleAggregateFunction(max, Int64)
        COMMENT 'Greatest Kafka offset in the sum'
        CODEC(T64, ZSTD(1)),
    INDEX minute_range minute TYPE minmax GRANULARITY 1
)
ENGINE = AggregatingMergeTree
ORDER BY (run_id, pipeline, stage, definition, phase, minute, latency_ms, _topic, _partition)
COMMENT 'Exact count of every millisecond of latency per minute of output time. Counts add up';
