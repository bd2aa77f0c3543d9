-- Were all outputs exact? How many were wrong, missing, late, duplicate or unexpected?
SELECT pipeline, stage, exact, wrong, missing, late, duplicate, unexpected
FROM tidegauge.verdict_totals
WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND phase = 'measure'
ORDER BY pipeline, stage
