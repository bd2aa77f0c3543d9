-- What were the worst seconds of the latest run?
SELECT second, pipeline, stage, phase, count, p99_ms, max_ms
FROM tidegauge.latency_by_second
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND definition = 'latest'
ORDER BY max_ms DESC, second
LIMIT 10
