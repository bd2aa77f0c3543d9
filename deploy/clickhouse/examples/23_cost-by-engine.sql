-- What does a million records cost on each engine and version?
SELECT engine, engine_version, pipeline, domain, workload, rate_per_second, uniqExact(run_id) AS runs,
    median(core_seconds_per_million_records) AS core_seconds_per_million
FROM tidegauge.figures
WHERE valid AND step_of = ''
GROUP BY engine, engine_version, pipeline, domain, workload, rate_per_second
ORDER BY domain, workload, rate_per_second, core_seconds_per_million
