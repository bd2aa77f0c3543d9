-- Views of scraped metrics. Names are those of the JMX exporter with the rules of
-- deploy/kafka/jmx-exporter.yaml. A rate is the increase of a counter in an interval divided by its
-- length, so filters on time and name reach the table, and no row needs the previous one.

CREATE OR REPLACE VIEW tidegauge.metric_rates AS
SELECT
    run_id,
    m.time AS time,
    source,
    name,
    labels,
    interval_s,
    increase,
    increase / interval_s AS per_second
FROM tidegauge.results_metrics AS m
WHERE increase IS NOT NULL
COMMENT 'Every counter as a rate per second over the time between two scrapes';

ALTER TABLE tidegauge.metric_rates
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was scraped',
    COMMENT COLUMN source 'Where the metrics were scraped: kafka, or the name of a further endpoint',
    COMMENT COLUMN name 'Name of the counter',
    COMMENT COLUMN labels 'Its labels',
    COMMENT COLUMN interval_s 'Seconds since the scrape before',
    COMMENT COLUMN increase 'Increase in this time',
    COMMENT COLUMN per_second 'Increase per second';

CREATE OR REPLACE VIEW tidegauge.broker_throughput AS
SELECT
    run_id,
    m.time AS time,
    source,
    labels['topic'] AS topic,
    sumIf(increase, name = 'kafka_server_brokertopicmetrics_messagesin_total')
        / any(interval_s) AS messages_in_per_second,
    sumIf(increase, name = 'kafka_server_brokertopicmetrics_bytesin_total')
        / any(interval_s) AS bytes_in_per_second,
    sumIf(increase, name = 'kafka_server_brokertopicmetrics_bytesout_total')
        / any(interval_s) AS bytes_out_per_second
FROM tidegauge.results_metrics AS m
WHERE startsWith(name, 'kafka_server_brokertopicmetrics_') AND increase IS NOT NULL
GROUP BY run_id, time, source, topic
COMMENT 'Messages in, bytes in and bytes out per second of each broker, by topic; an empty topic is the total';

ALTER TABLE tidegauge.broker_throughput
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was scraped',
    COMMENT COLUMN source 'Where the metrics were scraped: kafka, or the name of a further endpoint',
    COMMENT COLUMN topic 'The topic; empty for the total',
    COMMENT COLUMN messages_in_per_second 'Messages written per second',
    COMMENT COLUMN bytes_in_per_second 'Bytes written per second',
    COMMENT COLUMN bytes_out_per_second 'Bytes read per second';

CREATE OR REPLACE VIEW tidegauge.broker_log_size AS
SELECT
    run_id,
    m.time AS time,
    source,
    labels['topic'] AS topic,
    count() AS partitions,
    sum(value) AS bytes
FROM tidegauge.results_metrics AS m
WHERE name = 'kafka_log_log_size'
GROUP BY run_id, time, source, topic
COMMENT 'Bytes of each topic on each broker';

ALTER TABLE tidegauge.broker_log_size
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was scraped',
    COMMENT COLUMN source 'Where the metrics were scraped: kafka, or the name of a further endpoint',
    COMMENT COLUMN topic 'The topic',
    COMMENT COLUMN partitions 'Number of partitions with a size',
    COMMENT COLUMN bytes 'Size of the logs of the topic, bytes';

CREATE OR REPLACE VIEW tidegauge.broker_requests AS
SELECT
    run_id,
    m.time AS time,
    source,
    labels['request'] AS request,
    sumIf(increase, name = 'kafka_network_requestmetrics_requests_total')
        / any(interval_s) AS per_second,
    anyIf(value, name = 'kafka_network_requestmetrics_totaltimems_mean') AS mean_ms,
    anyIf(value, name = 'kafka_network_requestmetrics_totaltimems' AND labels['quantile'] = '0.99') AS p99_ms
FROM tidegauge.results_metrics AS m
WHERE startsWith(name, 'kafka_network_requestmetrics_')
GROUP BY run_id, time, source, request
COMMENT 'Requests to each broker by kind: rate per second, and request time as reported by the broker: the mean since its start, and the 99th percentile weighted towards the last minutes. FetchConsumer includes the time spent waiting for records';

ALTER TABLE tidegauge.broker_requests
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was scraped',
    COMMENT COLUMN source 'Where the metrics were scraped: kafka, or the name of a further endpoint',
    COMMENT COLUMN request 'Kind of request: Produce or FetchConsumer',
    COMMENT COLUMN per_second 'Requests per second since the scrape before',
    COMMENT COLUMN mean_ms 'Mean time of a request since the start of the broker, milliseconds',
    COMMENT COLUMN p99_ms '99th percentile of the time of a request, weighted towards the last minutes, milliseconds';

CREATE OR REPLACE VIEW tidegauge.consumer_partition_lag AS
SELECT
    run_id,
    m.time AS time,
    labels['group'] AS group_id,
    labels['topic'] AS topic,
    toInt32OrZero(labels['partition']) AS partition,
    labels['member'] AS member,
    toInt64(maxIf(value, name = 'kafka_consumergroup_lag')) AS records_behind,
    maxOrNullIf(toInt64(value), name = 'kafka_consumergroup_current_offset') AS committed_offset,
    fromUnixTimestamp64Milli(maxOrNullIf(
        toInt64(round(1000 * value)), name = 'kafka_consumergroup_next_record_timestamp_seconds'
    ), 'UTC') AS next_record_at,
    maxOrNullIf(value, name = 'kafka_consumergroup_lag_seconds') AS seconds_behind,
    maxOrNullIf(value, name = 'kafka_consumergroup_catch_up_seconds') AS caught_up_in_s
FROM tidegauge.results_metrics AS m
WHERE name IN (
    'kafka_consumergroup_lag',
    'kafka_consumergroup_current_offset',
    'kafka_consumergroup_next_record_timestamp_seconds',
    'kafka_consumergroup_lag_seconds',
    'kafka_consumergroup_catch_up_seconds'
)
GROUP BY run_id, time, group_id, topic, partition, member
COMMENT 'How far each consumer group is behind in each partition: in records and, for groups of a watch, in time; only groups that commit offsets';

ALTER TABLE tidegauge.consumer_partition_lag
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was asked',
    COMMENT COLUMN group_id 'The consumer group',
    COMMENT COLUMN topic 'The topic it reads',
    COMMENT COLUMN partition 'The partition',
    COMMENT COLUMN member 'Id of the member that the partition is assigned to; empty without one, and for groups of no watch',
    COMMENT COLUMN records_behind 'Records between the committed offset and the end of the partition',
    COMMENT COLUMN committed_offset 'The committed offset; NULL for groups of no watch',
    COMMENT COLUMN next_record_at 'Timestamp of the record that the group reads next; NULL if there is none, or it is unknown',
    COMMENT COLUMN seconds_behind 'Age of that record, 0 if there is none; NULL if it is unknown',
    COMMENT COLUMN caught_up_in_s 'Seconds until the group has read the partition, at the rates of the last minute; NULL if it does not catch up, or the rates are unknown';

CREATE OR REPLACE VIEW tidegauge.consumer_lag AS
SELECT
    run_id,
    l.time AS time,
    group_id,
    topic,
    count() AS partitions,
    sum(l.records_behind) AS records_behind,
    max(l.records_behind) AS most_of_a_partition,
    if(count(l.seconds_behind) = count(), max(l.seconds_behind), NULL) AS seconds_behind,
    if(count(l.caught_up_in_s) = count(), max(l.caught_up_in_s), NULL) AS caught_up_in_s
FROM tidegauge.consumer_partition_lag AS l
GROUP BY run_id, time, group_id, topic
COMMENT 'How far each consumer group is behind in each topic: records between its committed offsets and the end and, for groups of a watch, time; only groups that commit offsets';

ALTER TABLE tidegauge.consumer_lag
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When it was asked',
    COMMENT COLUMN group_id 'The consumer group',
    COMMENT COLUMN topic 'The topic it reads',
    COMMENT COLUMN partitions 'Number of partitions with a committed offset',
    COMMENT COLUMN records_behind 'Records between the committed offsets and the ends of the partitions',
    COMMENT COLUMN most_of_a_partition 'The same of the partition with the most',
    COMMENT COLUMN seconds_behind 'Age of the oldest record that it reads next, 0 if there is none; NULL if that of a partition is unknown',
    COMMENT COLUMN caught_up_in_s 'Seconds until it has read all partitions, at the rates of the last minute; NULL if it does not catch up, or the rates are unknown';
