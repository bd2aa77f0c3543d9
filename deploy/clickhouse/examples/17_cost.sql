-- How many core-seconds does each pipeline need per million input records?
SELECT
    u.run_id AS run_id,
    u.pipeline AS pipeline,
    u.cpu_seconds AS core_seconds,
    i.records AS input_records,
    1e6 * core_seconds / input_records AS core_seconds_per_million_records
FROM
(
    SELECT run_id, pipeline, sum(r.cpu_seconds) AS cpu_seconds
    FROM tidegauge.results_resources AS r
    WHERE pipeline != '' AND run_id != ''
        -- Pipelines that were measured alternately had only a part of the input each.
        AND run_id NOT IN (
            SELECT run_id FROM tidegauge.results_lifecycle
            WHERE event = 'run_requested' AND JSONType(detail, 'interleaved') = 'Object'
        )
    GROUP BY run_id, pipeline
) AS u
INNER JOIN
(
    SELECT run_id, sum(g.acknowledged) AS records
    FROM tidegauge.results_generator AS g
    GROUP BY run_id
) AS i ON i.run_id = u.run_id
WHERE input_records > 0
ORDER BY run_id DESC, pipeline
LIMIT 50
