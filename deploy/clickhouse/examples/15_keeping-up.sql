-- Does the pipeline keep up, or does a backlog grow?
SELECT
    second,
    pipeline,
    sum(records_in) OVER (PARTITION BY pipeline ORDER BY second) AS in_so_far,
    sum(records_out) OVER (PARTITION BY pipeline ORDER BY second) AS out_so_far,
    in_so_far - out_so_far AS between
FROM
(
    SELECT second, p.pipeline AS pipeline,
        sumIf(t.records, t.pipeline = '') AS records_in,
        sumIf(t.records, t.pipeline = p.pipeline) AS records_out
    FROM tidegauge.throughput_by_second AS t
    CROSS JOIN
    (
        SELECT DISTINCT pipeline FROM tidegauge.results_throughput
        WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND stage = 'parse'
    ) AS p
    WHERE run_id = (SELECT run_id FROM tidegauge.latest_run) AND (t.pipeline = '' OR t.stage = 'parse')
    GROUP BY second, pipeline
)
ORDER BY pipeline, second
