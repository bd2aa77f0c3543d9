-- How long do Spark's batches take, and how far is the watermark behind?
SELECT
    pipeline,
    stage,
    count() AS reports,
    quantileExact(0.5)(batch_duration_ms) AS batch_p50_ms,
    max(batch_duration_ms) AS batch_max_ms,
    max(state_rows) AS max_state_rows,
    max(dateDiff('millisecond', watermark, p.time)) AS max_watermark_lag_ms
FROM tidegauge.results_pipeline AS p
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run)
GROUP BY pipeline, stage
ORDER BY pipeline, stage
