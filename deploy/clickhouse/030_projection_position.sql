-- Where projection goes on in a partition whose last records left no row behind: records that could
-- not be read (they are on the topic dead-letter) and events that hold no value. The store resumes
-- at the greater of this and the offset after the greatest `_offset` of the topic's own table.

CREATE TABLE IF NOT EXISTS tidegauge.projection_position
(
    topic LowCardinality(String) COMMENT 'Kafka topic',
    `partition` Int32 COMMENT 'Kafka partition',
    next_offset Int64 COMMENT 'Every record before this offset has been dealt with',
    `time` DateTime64(3, 'UTC') COMMENT 'When this was written'
)
ENGINE = ReplacingMergeTree(next_offset)
ORDER BY (topic, `partition`)
COMMENT 'Positions on the results bus that the raw tables themselves do not show';
