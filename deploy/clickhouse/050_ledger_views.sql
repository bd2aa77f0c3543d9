-- Correctness, load and throughput. Counts of several events are added up.

CREATE OR REPLACE VIEW tidegauge.verdict_totals AS
SELECT
    run_id,
    pipeline,
    stage,
    phase,
    sum(v.exact) AS exact,
    sum(v.wrong) AS wrong,
    sum(v.missing) AS missing,
    sum(v.late) AS late,
    sum(v.duplicate) AS duplicate,
    sum(v.unexpected) AS unexpected
FROM tidegauge.results_verdicts AS v
GROUP BY run_id, pipeline, stage, phase
COMMENT 'The correctness ledger: verdicts on outputs per run, pipeline, stage and phase';

ALTER TABLE tidegauge.verdict_totals
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN exact 'Outputs that are right and in time',
    COMMENT COLUMN wrong 'Outputs that differ from what the inputs imply',
    COMMENT COLUMN missing 'Expected outputs that had not arrived when waiting ended',
    COMMENT COLUMN late 'Right outputs after the deadline',
    COMMENT COLUMN duplicate 'Outputs that were published again',
    COMMENT COLUMN unexpected 'Outputs that no input implies';

CREATE OR REPLACE VIEW tidegauge.generator_send_delays AS
SELECT
    run_id,
    producer,
    phase,
    second,
    send_delay_us,
    send_delay_count AS count
FROM tidegauge.results_generator
ARRAY JOIN send_delays_us AS send_delay_us, counts AS send_delay_count
COMMENT 'Delay between scheduled and actual send time: one row per second and distinct delay, microseconds';

ALTER TABLE tidegauge.generator_send_delays
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN producer 'The generator',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN second 'Second in which the records were sent, as its start',
    COMMENT COLUMN send_delay_us 'Delay between scheduled and actual send time, microseconds',
    COMMENT COLUMN count 'Number of records';

CREATE OR REPLACE VIEW tidegauge.generator_summary AS
WITH quantilesExactWeightedArray(0.5, 0.99, 1)(send_delays_us, counts) AS send_delays
SELECT
    run_id,
    phase,
    sum(g.intended) AS intended,
    sum(g.sent) AS sent,
    sum(g.acknowledged) AS acknowledged,
    sum(g.failed) AS failed,
    if(sum(g.sent) = 0, NULL, send_delays[1] / 1000) AS send_delay_p50_ms,
    if(sum(g.sent) = 0, NULL, send_delays[2] / 1000) AS send_delay_p99_ms,
    if(sum(g.sent) = 0, NULL, send_delays[3] / 1000) AS send_delay_max_ms
FROM tidegauge.results_generator AS g
GROUP BY run_id, phase
COMMENT 'How well the generators kept to the schedule; delays are NULL if nothing was sent';

ALTER TABLE tidegauge.generator_summary
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN phase 'Phase of the load: warm_up, measure, cool_down or drain',
    COMMENT COLUMN intended 'Records that the schedule demanded',
    COMMENT COLUMN sent 'Records that were handed to the client',
    COMMENT COLUMN acknowledged 'Records that the broker acknowledged',
    COMMENT COLUMN failed 'Records that could not be written',
    COMMENT COLUMN send_delay_p50_ms 'Median delay between scheduled and actual send time, milliseconds',
    COMMENT COLUMN send_delay_p99_ms '99th percentile of the delay between scheduled and actual send time, milliseconds',
    COMMENT COLUMN send_delay_max_ms 'Longest delay between scheduled and actual send time, milliseconds';

CREATE OR REPLACE VIEW tidegauge.throughput_by_second AS
SELECT
    run_id,
    topic,
    pipeline,
    stage,
    second,
    sum(t.records) AS records,
    sum(t.bytes) AS bytes,
    sum(t.aborted) AS aborted
FROM tidegauge.results_throughput AS t
GROUP BY run_id, topic, pipeline, stage, second
COMMENT 'Records and bytes per topic and second of LogAppendTime; input topics have no pipeline';

ALTER TABLE tidegauge.throughput_by_second
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN topic 'The topic',
    COMMENT COLUMN pipeline 'The pipeline; empty for input topics',
    COMMENT COLUMN stage 'The stage; empty for input topics',
    COMMENT COLUMN second 'Second of append time, as its start',
    COMMENT COLUMN records 'Number of records',
    COMMENT COLUMN bytes 'Size of their values, bytes',
    COMMENT COLUMN aborted 'Number of records of aborted transactions, which are not among them';
