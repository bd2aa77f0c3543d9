-- The offset from which projection continues in partitions whose last records left no row:
-- unreadable records (they are on the topic dead-letter), events without values, and expired rows.
-- Everything before `next_offset` is in every table of the topic. The store resumes at the greater
-- of this and the offset after the greatest `_offset` of the topic's table. If the topic also has a
-- rollup, the smaller offset of the two tables counts.

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

CREATE OR REPLACE VIEW tidegauge.projection_progress AS
SELECT
    topic,
    `partition`,
    max(p.next_offset) AS next_offset
FROM
(
    SELECT topic, `partition`, next_offset FROM tidegauge.projection_position
    UNION ALL
    SELECT r._topic, r._partition, least(r.next_offset, m.next_offset)
    FROM
    (
        SELECT _topic, _partition, max(_offset) + 1 AS next_offset
        FROM tidegauge.results_latency GROUP BY _topic, _partition
    ) AS r
    INNER JOIN
    (
        SELECT _topic, _partition, max(_offset) + 1 AS next_offset
        FROM tidegauge.latency_minutes GROUP BY _topic, _partition
    ) AS m ON m._topic = r._topic AND m._partition = r._partition
    UNION ALL SELECT _topic, _partition, max(_offset) + 1 FROM tidegauge.{raw_table} GROUP BY _topic, _partition
) AS p
GROUP BY topic, `partition`
COMMENT 'Next offset of the bus to project, by topic and partition; all earlier events can be queried';

ALTER TABLE tidegauge.projection_progress
    COMMENT COLUMN topic 'Topic of the bus',
    COMMENT COLUMN partition 'Its partition',
    COMMENT COLUMN next_offset 'Offset of the next event to project';
