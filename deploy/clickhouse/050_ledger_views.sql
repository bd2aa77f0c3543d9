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

CREATE OR REPLACE VIEW tidegauge.generator_summary AS
WITH quantilesExactWeightedArray(0.5, 0.99, 1)(send_delays_us, counts) AS send_delays
SELECT
    run_id,
    phase,
    sum(g.intended) AS intended,
    sum(g.sent) AS sent,
    sum(g.acknowledged) AS acknowledged,
    sum(g.failed) AS failed,
    send_delays[1] / 1000 AS send_delay_p50_ms,
    send_delays[2] / 1000 AS send_delay_p99_ms,
    send_delays[3] / 1000 AS send_delay_max_ms
FROM tidegauge.results_generator AS g
GROUP BY run_id, phase
COMMENT 'How well the generators kept to the schedule; delays are NULL if nothing was sent';

CREATE OR REPLACE VIEW tidegauge.throughput_by_second AS
SELECT
    run_id,
    topic,
    pipeline,
    stage,
    second,
    sum(t.records) AS records,
    sum(t.bytes) AS bytes
FROM tidegauge.results_throughput AS t
GROUP BY run_id, topic, pipeline, stage, second
COMMENT 'Records and bytes per topic and second of LogAppendTime; input topics have no pipeline';
