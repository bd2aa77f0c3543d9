-- How does latency depend on the interval between batches?
SELECT
    workload,
    domain,
    rate_per_second,
    pipeline,
    trigger_interval_ms,
    stage,
    count() AS runs,
    median(p50_ms) AS p50_ms,
    median(p99_ms) AS p99_ms
FROM tidegauge.figures
WHERE valid AND step_of = ''
GROUP BY workload, domain, rate_per_second, pipeline, trigger_interval_ms, stage
ORDER BY workload, domain, rate_per_second, stage, trigger_interval_ms, pipeline
