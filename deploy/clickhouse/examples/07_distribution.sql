-- How are the latencies distributed? Bucket widths double; the counts are exact.
SELECT
    pipeline,
    stage,
    if(latency_ms < 1, 0, toUInt64(exp2(floor(log2(latency_ms))))) AS from_ms,
    sum(m.count) AS outputs,
    bar(outputs, 0, max(outputs) OVER (PARTITION BY pipeline, stage), 30) AS picture
FROM tidegauge.latency_minutes AS m
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure' AND definition = 'latest'
GROUP BY pipeline, stage, from_ms
ORDER BY pipeline, stage, from_ms
