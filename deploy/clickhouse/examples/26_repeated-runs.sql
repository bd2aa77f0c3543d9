-- What are the medians of repeated runs, and how sure are they?
SELECT run_id, pipeline, stage, figure, median, low, high, confidence, valid_runs
FROM tidegauge.repetitions
WHERE definition IN ('latest', '')
ORDER BY time DESC, pipeline, stage, figure
LIMIT 100
