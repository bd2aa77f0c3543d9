-- How did latency develop during the latest run, second by second?
SELECT second, pipeline, stage, count, p50_ms, p99_ms
FROM tidegauge.latency_by_second
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND definition = 'latest'
ORDER BY pipeline, stage, second
