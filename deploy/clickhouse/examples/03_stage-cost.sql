-- How much latency does each stage add to its upstream stage, in chained pipelines?
SELECT pipeline, stage_before, stage, p50_cost_ms, p99_cost_ms
FROM tidegauge.stage_cost
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure' AND definition = 'latest'
    AND stage_before IS NOT NULL
ORDER BY pipeline, p50_ms
