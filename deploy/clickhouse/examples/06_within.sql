-- What share of the outputs had a latency of at most 10 ms, 100 ms, 1 s and 10 s?
SELECT
    pipeline,
    stage,
    sumIf(m.count, latency_ms <= 10) / sum(m.count) AS within_10_ms,
    sumIf(m.count, latency_ms <= 100) / sum(m.count) AS within_100_ms,
    sumIf(m.count, latency_ms <= 1000) / sum(m.count) AS within_1_s,
    sumIf(m.count, latency_ms <= 10000) / sum(m.count) AS within_10_s
FROM tidegauge.latency_minutes AS m
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure' AND definition = 'latest'
GROUP BY pipeline, stage
ORDER BY pipeline, stage
