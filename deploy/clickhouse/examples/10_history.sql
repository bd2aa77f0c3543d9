-- How has the p99 of each stage changed from run to run in the last 30 days?
SELECT
    r.requested_at AS requested_at,
    s.run_id AS run_id,
    s.pipeline AS pipeline,
    s.stage AS stage,
    s.p99_ms AS p99_ms
FROM tidegauge.latency_summary AS s
INNER JOIN tidegauge.runs AS r ON r.run_id = s.run_id
WHERE s.phase = 'measure' AND s.definition = 'latest' AND r.step_of = ''
    AND r.requested_at > (SELECT max(requested_at) FROM tidegauge.runs) - INTERVAL 30 DAY
ORDER BY pipeline, stage, requested_at
