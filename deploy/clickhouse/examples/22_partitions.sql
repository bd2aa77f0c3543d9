-- How does latency depend on the number of partitions?
SELECT partitions, pipeline, stage, rate_per_second, count() AS runs, median(p50_ms) AS p50_ms, median(p99_ms) AS p99_ms
FROM tidegauge.figures
WHERE valid AND step_of = ''
GROUP BY partitions, pipeline, stage, rate_per_second
ORDER BY stage, pipeline, rate_per_second, partitions
