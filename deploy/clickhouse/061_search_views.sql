-- Searches for the sustainable throughput: their steps with the evidence of each, and their results.

CREATE OR REPLACE VIEW tidegauge.search_steps AS
SELECT
    run_id,
    JSONExtractUInt(detail, 'step') AS step,
    JSONExtractString(detail, 'step_run_id') AS step_run_id,
    c.time AS time,
    JSONExtractFloat(detail, 'rate_per_second') AS rate_per_second,
    JSONExtractUInt(detail, 'measured_s') AS measured_s,
    CAST(JSONExtractBool(detail, 'sustained') AS Bool) AS sustained,
    CAST(JSONExtractBool(detail, 'undecided') AS Bool) AS undecided,
    CAST(JSONExtractBool(detail, 'by_input_alone') AS Bool) AS by_input_alone,
    CAST(JSONExtractBool(detail, 'cold') AS Bool) AS cold,
    JSONExtractString(detail, 'limited_by') AS limited_by,
    JSONExtract(detail, 'reasons', 'Array(String)') AS reasons,
    JSONExtract(detail, 'steady', 'Nullable(Bool)') AS steady,
    JSONExtract(detail, 'moving', 'Array(String)') AS moving,
    JSONExtract(detail, 'warm_up_s', 'Nullable(UInt32)') AS warm_up_s,
    JSONExtract(detail, 'cpu_share', 'Nullable(Float64)') AS cpu_share,
    JSONExtractUInt(detail, 'failed_sends') AS failed_sends,
    entry.1 AS stage,
    JSONExtract(entry.2, 'highest_median_ms', 'Nullable(Float64)') AS highest_median_ms,
    JSONExtract(entry.2, 'rise_ms_per_s', 'Nullable(Float64)') AS rise_ms_per_s,
    JSONExtract(entry.2, 'longest_queue_records', 'Nullable(Float64)') AS longest_queue_records,
    JSONExtract(entry.2, 'drained_s', 'Nullable(Float64)') AS drained_s,
    JSONExtractUInt(entry.2, 'missing') AS missing
FROM tidegauge.results_conclusions AS c
LEFT ARRAY JOIN JSONExtractKeysAndValuesRaw(detail, 'stages') AS entry
WHERE kind = 'search_step'
COMMENT 'Steps of searches for the sustainable rate: one row per step and stage; stage is empty if nothing was observed';

ALTER TABLE tidegauge.search_steps
    COMMENT COLUMN run_id 'The run that searched',
    COMMENT COLUMN step 'Number of the step, from 1',
    COMMENT COLUMN step_run_id 'The step as a run',
    COMMENT COLUMN time 'When the step was judged',
    COMMENT COLUMN rate_per_second 'Rate of the step, records per second',
    COMMENT COLUMN measured_s 'Measured duration, seconds',
    COMMENT COLUMN sustained 'Whether the rate was sustained',
    COMMENT COLUMN undecided 'Whether the step did not decide',
    COMMENT COLUMN by_input_alone 'Whether the pipelines kept up and only the input was late or incomplete',
    COMMENT COLUMN cold 'Whether the pipeline was new',
    COMMENT COLUMN limited_by 'What limited the rate',
    COMMENT COLUMN reasons 'Why it was not sustained, one sentence each',
    COMMENT COLUMN steady 'Whether the stages were steady; NULL if unknown',
    COMMENT COLUMN moving 'Figures that were not steady, one sentence each',
    COMMENT COLUMN warm_up_s 'Duration of the warm-up, seconds',
    COMMENT COLUMN cpu_share 'Share of its available CPU time that the pipeline used, 0 to 1',
    COMMENT COLUMN failed_sends 'Records that could not be written',
    COMMENT COLUMN stage 'The stage; empty if nothing was observed',
    COMMENT COLUMN highest_median_ms 'Highest median latency of a second, milliseconds',
    COMMENT COLUMN rise_ms_per_s 'Rise of the median latency, milliseconds per second',
    COMMENT COLUMN longest_queue_records 'Longest queue before the stage, records',
    COMMENT COLUMN drained_s 'Time until the queue was processed, seconds',
    COMMENT COLUMN missing 'Expected outputs that did not arrive';

CREATE OR REPLACE VIEW tidegauge.sustainable_rates AS
SELECT
    run_id,
    c.time AS time,
    JSONExtractString(detail, 'pipeline') AS pipeline,
    JSONExtract(detail, 'stages', 'Array(String)') AS stages,
    JSONExtractString(detail, 'policy') AS policy,
    JSONExtract(detail, 'rate_per_second', 'Nullable(Float64)') AS rate_per_second,
    JSONExtract(detail, 'interval_per_second', 'Array(Nullable(Float64))') AS interval_per_second,
    CAST(JSONExtractBool(detail, 'confirmed') AS Bool) AS confirmed,
    CAST(JSONExtractBool(detail, 'verified') AS Bool) AS verified,
    JSONExtract(detail, 'verified_at_per_second', 'Nullable(Float64)') AS verified_at_per_second,
    JSONExtract(detail, 'limit', 'Array(String)') AS limit_reasons,
    JSONExtractString(detail, 'limited_by') AS limited_by,
    JSONExtractString(detail, 'ended_by') AS ended_by,
    valid
FROM tidegauge.results_conclusions AS c
WHERE kind = 'sustainable_throughput'
COMMENT 'Results of searches: the rate found, the bounds of the capacity, the reason for the end, and whether a run at a share of the rate was sustained';

ALTER TABLE tidegauge.sustainable_rates
    COMMENT COLUMN run_id 'The run that searched',
    COMMENT COLUMN time 'When the search ended',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stages 'Stages that were searched together',
    COMMENT COLUMN policy 'The policy that decides what is sustained',
    COMMENT COLUMN rate_per_second 'Rate found, records per second',
    COMMENT COLUMN interval_per_second 'Bounds of the capacity, records per second',
    COMMENT COLUMN confirmed 'Whether a long step sustained it',
    COMMENT COLUMN verified 'Whether a run at a share of the rate was sustained',
    COMMENT COLUMN verified_at_per_second 'Rate of that run, records per second',
    COMMENT COLUMN limit_reasons 'Why the next higher rate was not sustained, one sentence each',
    COMMENT COLUMN limited_by 'What limited the rate',
    COMMENT COLUMN ended_by 'What ended the search: precision, steps, budget (of time), highest rate or lowest rate; empty if unknown',
    COMMENT COLUMN valid 'Whether the result may be used';
