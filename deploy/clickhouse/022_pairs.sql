-- Every output with its latencies, if a workload requests it (`pairs`).

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
