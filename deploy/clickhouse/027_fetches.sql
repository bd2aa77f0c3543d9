-- What was handed to the Kafka clients of a pipeline, of runs with `processing_time`, and how fast
-- they read.

CREATE TABLE IF NOT EXISTS tidegauge.results_fetches
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
        COMMENT 'Pipeline whose Kafka clients were answered'
        CODEC(ZSTD(1)),
    topic LowCardinality(String)
        COMMENT 'Input topic; empty in the event that says up to when all of them are known'
        CODEC(ZSTD(1)),
    `partition` Int32
        COMMENT 'Its partition; -1 with an empty topic'
        CODEC(ZSTD(1)),
    until DateTime64(3, 'UTC')
        COMMENT 'Every answer passed on before this time is in an event up to this one'
        CODEC(Delta(8), ZSTD(1)),
    first Bool
        COMMENT 'Whether the proxy had noted nothing of the partition before; when another proxy handed over what it did not publish is then unknown'
        CODEC(ZSTD(1)),
    answers Int64
        COMMENT 'Answers to fetches with records of the partition since the previous event; several clients of a pipeline may get the same records'
        CODEC(T64, ZSTD(1)),
    records Int64
        COMMENT 'Records in them, with those of whole batches before the offset asked for'
        CODEC(T64, ZSTD(1)),
    bytes Int64
        COMMENT 'Bytes of their batches, as sent'
        CODEC(T64, ZSTD(1)),
    last_offsets Array(Int64)
        COMMENT 'The highest offset handed over, after each millisecond in which it rose'
        CODEC(ZSTD(1)),
    handed_ms Array(Int64)
        COMMENT 'These milliseconds, epoch, by the clock of the proxy'
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
ORDER BY (run_id, pipeline, topic, `partition`, until)
COMMENT 'What was handed to the Kafka clients of a pipeline, observed by a proxy between them and the broker. Counts add up';

CREATE OR REPLACE VIEW tidegauge.pull_rates AS
SELECT
    run_id,
    pipeline,
    topic,
    toDateTime64(toStartOfSecond(until - toIntervalMillisecond(1)), 3, 'UTC') AS second,
    sum(f.answers) AS answers,
    sum(f.records) AS records,
    sum(f.bytes) AS bytes
FROM tidegauge.results_fetches AS f
WHERE topic != ''
GROUP BY run_id, pipeline, topic, second
COMMENT 'How fast a pipeline pulls its input, as the proxy before the broker sees it: by topic and second';

ALTER TABLE tidegauge.pull_rates
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN topic 'Input topic',
    COMMENT COLUMN second 'Second in which the counts were taken, by the clock of the proxy; they cover half a second each',
    COMMENT COLUMN answers 'Answers to fetches with records of the topic',
    COMMENT COLUMN records 'Records in them; a record that several stages read counts for each',
    COMMENT COLUMN bytes 'Bytes of their batches, as sent';
