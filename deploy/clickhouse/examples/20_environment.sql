-- What did each run take place on?
SELECT
    run_id,
    JSONExtractString(detail, 'environment', 'tidegauge') AS tidegauge,
    JSONExtractString(detail, 'environment', 'host') AS host,
    JSONExtractString(detail, 'environment', 'processor') AS processor,
    JSONExtractInt(detail, 'environment', 'cores') AS cores,
    JSONExtractString(detail, 'environment', 'java') AS java,
    JSONExtractString(detail, 'environment', 'packages', 'pyspark') AS pyspark
FROM tidegauge.results_lifecycle
WHERE event = 'run_requested'
ORDER BY `time` DESC
LIMIT 50
