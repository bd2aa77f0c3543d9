-- How much longer than a plain copy does each stage take, in runs with a floor?
SELECT pipeline, stage, workload, rate_per_second, count() AS runs, median(f.p50_ms) AS p50_ms,
    median(f.floor_p50_ms) AS floor_p50_ms, median(f.p50_ms - f.floor_p50_ms) AS p50_above_ms,
    median(f.p99_ms - f.floor_p99_ms) AS p99_above_ms
FROM tidegauge.figures AS f
WHERE valid AND step_of = ''
GROUP BY pipeline, stage, workload, rate_per_second
ORDER BY workload, rate_per_second, stage, pipeline
