-- Series of searches with an increasing number of workers.

CREATE OR REPLACE VIEW tidegauge.scalability AS
SELECT
    q.run_id AS run_id,
    q.requested_at AS requested_at,
    JSONExtractString(q.scaled, 'series') AS series,
    JSONExtractString(q.scaled, 'pipeline') AS pipeline,
    JSONExtractUInt(q.scaled, 'workers') AS workers,
    JSONExtractUInt(q.scaled, 'partitions') AS partitions,
    s.stages AS stages,
    s.rate_per_second AS rate_per_second,
    s.interval_per_second AS interval_per_second,
    s.limited_by AS limited_by,
    s.verified AS verified,
    s.valid AS valid
FROM
(
    SELECT run_id, e.time AS requested_at, JSONExtractRaw(detail, 'scaled') AS scaled
    FROM tidegauge.results_lifecycle AS e
    WHERE event = 'run_requested' AND JSONType(detail, 'scaled') = 'Object'
    ORDER BY run_id, e.time, e._offset
    LIMIT 1 BY run_id
) AS q
INNER JOIN tidegauge.sustainable_rates AS s USING (run_id)
COMMENT 'One row per search of a series with increasing numbers of workers: the rate found and the bounds of the capacity. The view figures has the results of the run at a share of the rate';

ALTER TABLE tidegauge.scalability
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN series 'The series',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN workers 'Number of workers of the pipeline',
    COMMENT COLUMN partitions 'Partitions of each input topic',
    COMMENT COLUMN stages 'Stages that were searched together',
    COMMENT COLUMN rate_per_second 'Rate found, records per second',
    COMMENT COLUMN interval_per_second 'Bounds of the capacity, records per second',
    COMMENT COLUMN limited_by 'What limited the rate',
    COMMENT COLUMN verified 'Whether a run at a share of the rate was sustained',
    COMMENT COLUMN valid 'Whether the search is valid';
