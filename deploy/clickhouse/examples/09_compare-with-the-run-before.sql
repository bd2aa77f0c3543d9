-- Is the latest run slower than the previous run of the same workload?
WITH
    (SELECT run_id FROM tidegauge.latest_run) AS newest,
    (SELECT workload FROM tidegauge.runs WHERE run_id = newest) AS its_workload,
    (
        SELECT argMax(run_id, requested_at)
        FROM tidegauge.runs
        WHERE workload = its_workload AND concluded AND step_of = '' AND run_id != newest
    ) AS before
SELECT
    pipeline,
    stage,
    before AS run_before,
    maxIf(p99_ms, run_id = before) AS p99_before_ms,
    maxIf(p99_ms, run_id = newest) AS p99_now_ms,
    p99_now_ms - p99_before_ms AS change_ms
FROM tidegauge.latency_summary
WHERE run_id IN (newest, before) AND phase = 'measure' AND definition = 'latest'
GROUP BY pipeline, stage
HAVING uniq(run_id) = 2
ORDER BY change_ms DESC
