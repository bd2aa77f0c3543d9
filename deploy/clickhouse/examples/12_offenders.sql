-- Which outputs were not exact? Samples, with expected and actual values.
SELECT second, pipeline, stage, arrayJoin(samples) AS offender
FROM tidegauge.results_verdicts
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND notEmpty(samples)
ORDER BY second
LIMIT 20
