-- What was the environment of each run?
SELECT
    run_id,
    JSONExtractString(detail, 'environment', 'tidegauge') AS tidegauge,
    JSONExtractString(detail, 'environment', 'host') AS host,
    JSONExtractString(detail, 'environment', 'processor') AS processor,
    JSONExtractFloat(detail, 'environment', 'cores') AS cores,
    JSONExtractString(detail, 'environment', 'java') AS java,
    JSONExtractRaw(detail, 'environment', 'packages') AS packages
FROM tidegauge.results_lifecycle
WHERE event = 'run_requested'
ORDER BY `time` DESC
LIMIT 50
