-- Change points in the history of runs, as found by analysis/changes.

CREATE OR REPLACE VIEW tidegauge.change_points AS
SELECT
    c.run_id AS run_id,
    c.time AS time,
    JSONExtractString(detail, 'workload') AS workload,
    JSONExtractString(detail, 'pipeline') AS pipeline,
    JSONExtractString(detail, 'stage') AS stage,
    JSONExtractString(detail, 'metric') AS metric,
    JSONExtractString(detail, 'last_run_before') AS last_run_before,
    JSONExtractFloat(detail, 'before', 'median') AS before,
    JSONExtractFloat(detail, 'after', 'median') AS after,
    JSONExtractBool(detail, 'worse') AS worse,
    JSONExtractFloat(detail, 'p_value') AS p_value,
    JSONExtract(detail, 'likely_causes', 'Array(String)') AS likely_causes
FROM tidegauge.results_conclusions AS c
WHERE kind = 'change_point'
COMMENT 'Permanent changes of a figure of a workload: run_id is the first run after the change';
