-- Does the pipeline keep up, or does a backlog grow?
WITH
    (SELECT run_id FROM tidegauge.latest_run) AS newest,
    -- Pipelines that were measured alternately have input topics of their own.
    (
        SELECT count() > 0
        FROM tidegauge.results_lifecycle
        WHERE run_id = newest AND event = 'run_requested'
            AND JSONType(detail, 'interleaved') = 'Object'
    ) AS is_interleaved
SELECT
    second,
    pipeline,
    sum(records_in) OVER (PARTITION BY pipeline ORDER BY second) AS in_so_far,
    sum(records_out) OVER (PARTITION BY pipeline ORDER BY second) AS out_so_far,
    in_so_far - out_so_far AS between
FROM
(
    SELECT second, p.pipeline AS pipeline,
        sumIf(
            t.records,
            t.pipeline = '' AND (NOT is_interleaved OR endsWith(t.topic, concat('.', p.pipeline)))
        ) AS records_in,
        sumIf(t.records, t.pipeline = p.pipeline) AS records_out
    FROM tidegauge.throughput_by_second AS t
    CROSS JOIN
    (
        SELECT DISTINCT pipeline FROM tidegauge.results_throughput
        WHERE run_id = newest AND stage = 'parse'
    ) AS p
    WHERE run_id = newest AND (t.pipeline = '' OR t.stage = 'parse')
    GROUP BY second, pipeline
)
ORDER BY pipeline, second
