-- The stages of every run, from its request: the stages of its domain with their kinds. A watch has
-- no domain: the names of its stages.

CREATE OR REPLACE VIEW tidegauge.run_stages AS
SELECT
    run_id,
    requested_at,
    JSONExtractString(request, 'domain', 'name') AS domain,
    stage,
    position,
    kind,
    -- Nearest first: the stage it reads, the one which that reads, and so on, up to one that reads
    -- inputs. Without a domain: those before it.
    arrayFilter(
        name -> name != stage AND has(names, name),
        if(
            domain = '',
            arrayReverse(arraySlice(names, 1, position - 1)),
            arrayFold(
                (chain, _) -> arrayPushBack(chain, reads_of[chain[-1]]), range(20), [stage]
            )
        )
    ) AS made_of
FROM
(
    SELECT
        run_id,
        e.time AS requested_at,
        detail AS request,
        JSONExtractArrayRaw(detail, 'domain', 'stages') AS specs,
        if(
            empty(specs),
            JSONExtract(detail, 'stages', 'Array(String)'),
            arrayMap(spec -> JSONExtractString(spec, 'name'), specs)
        ) AS names,
        if(
            empty(specs),
            arrayMap(_ -> '', names),
            arrayMap(spec -> JSONExtractString(spec, 'kind'), specs)
        ) AS kinds,
        mapFromArrays(
            arraySlice(names, 1, length(specs)),
            arrayMap(spec -> JSONExtractString(spec, 'reads', 1), specs)
        ) AS reads_of
    FROM tidegauge.results_lifecycle AS e
    WHERE event IN ('run_requested', 'watch_begun')
    ORDER BY run_id, e.time, e._offset
    LIMIT 1 BY run_id
)
ARRAY JOIN names AS stage, kinds AS kind, arrayEnumerate(names) AS position
COMMENT 'One row per run and stage of its domain: position from 1, kind, and its upstream stages, nearest first (made_of)';

ALTER TABLE tidegauge.run_stages
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN domain 'Name of the domain',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN position 'Position of the stage in its domain, from 1',
    COMMENT COLUMN kind 'Kind of the stage',
    COMMENT COLUMN made_of 'Its upstream stages, nearest first';

CREATE OR REPLACE VIEW tidegauge.run_pipelines AS
SELECT
    run_id,
    requested_at,
    JSONExtractString(said, 'name') AS pipeline,
    JSONExtractString(said, 'engine') AS engine,
    JSONExtractString(request, 'topologies', pipeline) AS topology,
    JSONExtract(said, 'reads', 'Map(String, String)') AS reads
FROM
(
    SELECT run_id, e.time AS requested_at, detail AS request
    FROM tidegauge.results_lifecycle AS e
    WHERE event IN ('run_requested', 'watch_begun')
    ORDER BY run_id, e.time, e._offset
    LIMIT 1 BY run_id
)
ARRAY JOIN JSONExtractArrayRaw(request, 'pipelines') AS said
COMMENT 'One row per run and pipeline: engine, topology (independent, chained or via-topics; empty for a watch), and stages that read another stage than the domain defines';

ALTER TABLE tidegauge.run_pipelines
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN engine 'Engine of the pipeline',
    COMMENT COLUMN topology 'independent, chained or via-topics: how the stages read each other; empty for a watch',
    COMMENT COLUMN reads 'Stages that read another stage than the domain defines, by name';

CREATE OR REPLACE VIEW tidegauge.stage_chains AS
SELECT
    run_id,
    pipeline,
    topology,
    stage,
    arrayFilter(
        name -> name != stage AND has(stages, name),
        arrayFold((chain, _) -> arrayPushBack(chain, reads_of[chain[-1]]), range(20), [stage])
    ) AS made_of
FROM
(
    SELECT
        p.run_id AS run_id,
        p.pipeline AS pipeline,
        p.topology AS topology,
        s.stages AS stages,
        mapUpdate(s.nearest, p.reads) AS reads_of
    FROM tidegauge.run_pipelines AS p
    INNER JOIN
    (
        SELECT
            run_id,
            groupArray(r.stage) AS stages,
            mapFromArrays(groupArray(r.stage), groupArray(r.made_of[1])) AS nearest
        FROM tidegauge.run_stages AS r
        GROUP BY run_id
    ) AS s ON s.run_id = p.run_id
    WHERE p.topology IN ('chained', 'via-topics')
)
ARRAY JOIN stages AS stage
COMMENT 'One row per stage of a pipeline with topology chained or via-topics: its upstream stages there, nearest first (made_of)';

ALTER TABLE tidegauge.stage_chains
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN topology 'independent, chained or via-topics: how the stages read each other; empty for a watch',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN made_of 'Its upstream stages in this pipeline, nearest first';

CREATE OR REPLACE VIEW tidegauge.stage_positions AS
SELECT stage, argMax(r.position, (r.requested_at, r.run_id)) AS position
FROM tidegauge.run_stages AS r
GROUP BY stage
COMMENT 'Position of every stage in its domain, from the newest run that had it';

ALTER TABLE tidegauge.stage_positions
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN position 'Position of the stage in its domain, from 1';
