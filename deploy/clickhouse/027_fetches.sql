-- How fast the Kafka clients of a pipeline read, of runs with `processing_time`.

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
