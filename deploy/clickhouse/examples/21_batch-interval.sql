-- How does latency depend on the interval between batches?
SELECT pipeline, trigger_interval_ms, stage, count() AS runs, median(p50_ms) AS p50_ms, median(p99_ms) AS p99_ms
FROM tidegauge.figures
WHERE valid AND step_of = ''
GROUP BY pipeline, trigger_interval_ms, stage
ORDER BY stage, trigger_interval_ms, pipeline
