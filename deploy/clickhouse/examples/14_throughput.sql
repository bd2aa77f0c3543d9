-- How many records and bytes per second went in and came out?
SELECT topic, pipeline, stage,
    sum(records) / run_seconds AS mean_records_per_second,
    max(records) AS max_records_per_second, sum(bytes) AS bytes,
    -- A second in which a topic got nothing has no row, so the run's seconds are counted for all.
    dateDiff('second', min(min(second)) OVER (), max(max(second)) OVER ()) + 1 AS run_seconds
FROM tidegauge.throughput_by_second
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run)
GROUP BY topic, pipeline, stage
ORDER BY topic
