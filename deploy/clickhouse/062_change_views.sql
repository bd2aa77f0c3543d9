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
    CAST(JSONExtractBool(detail, 'worse') AS Bool) AS worse,
    JSONExtractFloat(detail, 'p_value') AS p_value,
    JSONExtract(detail, 'likely_causes', 'Array(String)') AS likely_causes
FROM tidegauge.results_conclusions AS c
WHERE kind = 'change_point'
COMMENT 'Permanent changes of a figure of a workload: run_id is the first run after the change';

ALTER TABLE tidegauge.change_points
    COMMENT COLUMN run_id 'First run after the change',
    COMMENT COLUMN time 'When it was found',
    COMMENT COLUMN workload 'Name of the workload',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN metric 'The figure that changed',
    COMMENT COLUMN last_run_before 'Last run before the change',
    COMMENT COLUMN before 'Median before the change',
    COMMENT COLUMN after 'Median after the change',
    COMMENT COLUMN worse 'Whether the change is for the worse',
    COMMENT COLUMN p_value 'Probability of such a difference without a change',
    COMMENT COLUMN likely_causes 'What else changed with that run, one sentence each';
