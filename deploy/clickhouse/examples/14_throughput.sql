-- How many records and bytes per second went in and came out?
SELECT topic, pipeline, stage, avg(records) AS mean_records_per_second,
    max(records) AS max_records_per_second, sum(bytes) AS bytes
FROM tidegauge.throughput_by_second
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run)
GROUP BY topic, pipeline, stage
ORDER BY topic
