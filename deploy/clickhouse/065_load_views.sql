-- What makes runs comparable: the same workload, domain, rate and machine.

CREATE OR REPLACE VIEW tidegauge.run_loads AS
SELECT
    run_id,
    e.time AS requested_at,
    arrayMap(p -> JSONExtractString(p, 'name'), JSONExtractArrayRaw(detail, 'pipelines'))
        AS pipelines,
    JSONExtractString(detail, 'workload', 'name') AS workload,
    ifNull(
        nullIf(JSONExtractString(detail, 'domain', 'name'), ''),
        JSONExtractString(detail, 'workload', 'domain')
    ) AS domain,
    JSONExtractFloat(detail, 'workload', 'load', 'rate_per_second') AS rate_per_second,
    concat(
        JSONExtractString(detail, 'environment', 'processor'), ', ',
        toString(JSONExtractInt(detail, 'environment', 'cores')), ' cores, ',
        toString(round(JSONExtractInt(detail, 'environment', 'memory_bytes') / 1e9)), ' GB'
    ) AS machine,
    concat(
        workload, ', ', domain, ', ', toString(rate_per_second), '/s, ', machine
    ) AS load
FROM tidegauge.results_lifecycle AS e
WHERE event = 'run_requested' AND JSONExtractString(detail, 'step_of') = ''
ORDER BY run_id, e.time, e._offset
LIMIT 1 BY run_id
COMMENT 'One row per run that is no step of a search: its load and machine. Runs with the same value in load are comparable';
