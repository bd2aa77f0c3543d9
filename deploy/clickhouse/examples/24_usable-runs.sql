-- How many runs of each pipeline are valid, steady and undisturbed, and on how many did the machine have no room left?
SELECT pipeline, workload, rate_per_second, uniqExact(run_id) AS runs, uniqExactIf(run_id, valid) AS valid_runs,
    uniqExactIf(run_id, steady) AS steady_runs, uniqExactIf(run_id, NOT disturbed) AS undisturbed_runs,
    uniqExactIf(run_id, saturated) AS saturated_runs
FROM tidegauge.figures
WHERE step_of = ''
GROUP BY pipeline, workload, rate_per_second
ORDER BY workload, rate_per_second, pipeline
