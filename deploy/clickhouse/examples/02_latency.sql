-- How long does each stage take, from input to output?
SELECT pipeline, stage, definition, count, p50_ms, p95_ms, p99_ms, max_ms
FROM tidegauge.latency_summary
INNER JOIN tidegauge.run_stages USING (run_id, stage)
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure'
ORDER BY pipeline, position, definition
