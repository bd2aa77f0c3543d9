-- Every output with the times of its inputs, if a workload requests it (`pairs`), and the view for
-- queries.

CREATE TABLE IF NOT EXISTS tidegauge.results_pairs
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline name'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'A stage of the run, as run_stages lists them'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase in which the latest contributing input was scheduled'
        CODEC(ZSTD(1)),
    verdict LowCardinality(String)
        COMMENT 'exact, wrong or late: the verdict on the first output at its place'
        CODEC(ZSTD(1)),
    output_partition Int32
        COMMENT 'Partition of the output topic that the output is in'
        CODEC(ZSTD(1)),
    output_offset Int64
        COMMENT 'Its offset there'
        CODEC(Delta(8), ZSTD(1)),
    appended_ms Int64
        COMMENT 'LogAppendTime of the output, epoch milliseconds'
        CODEC(Delta(8), ZSTD(1)),
    latest_input_ms Int64
        COMMENT 'LogAppendTime of the latest contributing input, epoch milliseconds'
        CODEC(Delta(8), ZSTD(1)),
    mean_input_ms Float64
        COMMENT 'Mean LogAppendTime of the contributing inputs, epoch milliseconds'
        CODEC(ZSTD(1)),
    scheduled_us Int64
        COMMENT 'Scheduled send time of the latest of them, epoch microseconds'
        CODEC(Delta(8), ZSTD(1)),
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
ORDER BY (run_id, pipeline, stage, appended_ms)
COMMENT 'One row per output with the times of the inputs that made it, where the workload publishes pairs';

ALTER TABLE tidegauge.results_pairs
    ADD COLUMN IF NOT EXISTS visible_from_ms Nullable(Int64)
        COMMENT 'From when consumers of committed records may have it, epoch milliseconds; NULL if unknown, as without transactions'
        CODEC(ZSTD(1))
        AFTER scheduled_us,
    ADD COLUMN IF NOT EXISTS handed_ms Nullable(Int64)
        COMMENT 'When the pipeline had been handed all contributing inputs, epoch milliseconds, by the clock of its proxy; NULL if unknown'
        CODEC(ZSTD(1))
        AFTER visible_from_ms;

CREATE OR REPLACE VIEW tidegauge.pairs AS
SELECT
    run_id,
    pipeline,
    stage,
    phase,
    verdict,
    fromUnixTimestamp64Milli(appended_ms, 'UTC') AS appended,
    fromUnixTimestamp64Milli(latest_input_ms, 'UTC') AS latest_input,
    fromUnixTimestamp64Micro(scheduled_us, 'UTC') AS scheduled,
    appended_ms - latest_input_ms AS latest_ms,
    toInt64(floor(appended_ms - mean_input_ms + 0.5)) AS mean_ms,
    appended_ms - intDiv(scheduled_us, 1000) AS event_time_ms,
    visible_from_ms - latest_input_ms AS visible_ms,
    appended_ms - handed_ms AS processing_time_ms,
    output_partition,
    output_offset
FROM tidegauge.results_pairs
COMMENT 'One row per output that is exact, wrong or late: its latency by each definition, and the position of its record';

ALTER TABLE tidegauge.pairs
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN verdict 'exact, wrong or late',
    COMMENT COLUMN appended 'When the broker appended the output',
    COMMENT COLUMN latest_input 'When the broker appended the latest input of the output',
    COMMENT COLUMN scheduled 'When this input was scheduled to be sent',
    COMMENT COLUMN latest_ms 'Latency from the latest input, milliseconds',
    COMMENT COLUMN mean_ms 'Latency from the mean time of the inputs, milliseconds',
    COMMENT COLUMN event_time_ms 'Latency from the scheduled send time of the latest input, milliseconds',
    COMMENT COLUMN visible_ms 'Latency until consumers of committed records may have the output, milliseconds; NULL if unknown, as without transactions',
    COMMENT COLUMN processing_time_ms 'Latency from when the pipeline had been handed its inputs, milliseconds; NULL in runs without processing_time',
    COMMENT COLUMN output_partition 'Partition of the output',
    COMMENT COLUMN output_offset 'Offset of the output';
