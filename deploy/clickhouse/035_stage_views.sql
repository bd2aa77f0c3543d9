-- The stages of every run, as its request says: the domain's stages with their kinds, and of runs of
-- versions without domains the names of the stages that were asked for.

CREATE OR REPLACE VIEW tidegauge.run_stages AS
SELECT
    run_id,
    requested_at,
    JSONExtractString(request, 'domain', 'name') AS domain,
    stage,
    position,
    kind,
    -- Nearest first: what it reads, what that reads, and so on. Without a domain: those before it.
    arrayFilter(
        name -> name != '' AND name != stage,
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
    WHERE event = 'run_requested'
    ORDER BY run_id, e.time, e._offset
    LIMIT 1 BY run_id
)
ARRAY JOIN names AS stage, kinds AS kind, arrayEnumerate(names) AS position
COMMENT 'One row per run and stage of its domain: position from 1, kind, and the stages that it is made of';

CREATE OR REPLACE VIEW tidegauge.stage_positions AS
SELECT stage, argMax(r.position, (r.requested_at, r.run_id)) AS position
FROM tidegauge.run_stages AS r
GROUP BY stage
COMMENT 'Position of every stage in its domain, of the newest run that had it';
