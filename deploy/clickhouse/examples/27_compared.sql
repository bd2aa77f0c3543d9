-- Which pipelines measured alternately differ, and which runs differ from their baseline?
SELECT time, kind, against, pipeline, stage, figure, before, after, unit, low, high, verdict
FROM tidegauge.comparisons
WHERE verdict IN ('worse', 'better')
ORDER BY time DESC, pipeline, stage, figure
LIMIT 100
