-- How long do batches take, and how large is the lag?
SELECT
    pipeline,
    stage,
    count() AS reports,
    quantileExact(0.5)(batch_duration_ms) AS batch_p50_ms,
    max(batch_duration_ms) AS batch_max_ms,
    max(state_rows) AS most_state_rows,
    max(watermark_lag_ms) AS most_watermark_lag_ms,
    max(lag_records) AS most_records_behind
FROM tidegauge.pipeline_progress
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run)
GROUP BY pipeline, stage
ORDER BY pipeline, stage
