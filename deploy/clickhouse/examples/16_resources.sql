-- How much CPU time and memory did each service use?
SELECT service, pipeline, mean_cpu_cores, cpu_seconds, formatReadableSize(max_memory_bytes) AS max_memory,
    formatReadableSize(max_heap_used_bytes) AS max_heap
FROM tidegauge.resources_summary
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run)
ORDER BY cpu_seconds DESC
