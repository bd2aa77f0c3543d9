-- Which runs are there, and which of them are valid?
SELECT run_id, workload, pipelines, requested_at, concluded, valid, clean, invalid_reasons
FROM tidegauge.runs
ORDER BY requested_at DESC
LIMIT 50
