-- Which pipeline is the fastest at each stage, and by how much?
SELECT
    stage,
    argMin(pipeline, p99_ms) AS fastest,
    min(p99_ms) AS fastest_p99_ms,
    groupArray((pipeline, p99_ms)) AS p99_ms_by_pipeline,
    max(p99_ms) / greatest(min(p99_ms), 1) AS slowest_to_fastest
FROM tidegauge.latency_summary
INNER JOIN tidegauge.run_stages USING (run_id, stage)
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure' AND definition = 'latest'
GROUP BY stage
ORDER BY any(position)
