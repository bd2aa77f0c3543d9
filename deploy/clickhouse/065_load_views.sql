-- The attributes that make runs comparable: workload, domain, rate, load settings and machine.

CREATE OR REPLACE VIEW tidegauge.run_loads AS
SELECT
    run_id,
    requested_at,
    arrayMap(p -> JSONExtractString(p, 'name'), JSONExtractArrayRaw(request, 'pipelines'))
        AS pipelines,
    JSONExtractString(request, 'workload', 'name') AS workload,
    ifNull(
        nullIf(JSONExtractString(request, 'domain', 'name'), ''),
        JSONExtractString(request, 'workload', 'domain')
    ) AS domain,
    -- A rate found by a search, or a fraction of it, is not in the request.
    ifNull(prepared_rate, JSONExtractFloat(request, 'workload', 'load', 'rate_per_second'))
        AS rate_per_second,
    -- Attributes of analysis/comparability.py that differ from the defaults.
    arrayStringConcat(
        arraySort(
            arrayFilter(
                text -> NOT match(text, ' (|null|""|\\{\\}|\\[\\]|0|0\\.0|false)$')
                    AND NOT startsWith(text, 'rate_per_second ')
                    AND text NOT IN (
                        'shape "constant"', 'burst_ms 175', 'speed 60', 'speed 60.0',
                        'source "domain"', 'format "avro"', 'second_ms 1000', 'copies 1',
                        'late_ms 2000', 'late_distribution "exponential"', 'transport "kafka"'
                    ),
                arrayConcat(
                    arrayMap(
                        x -> concat(x.1, ' ', x.2),
                        arrayConcat(
                            JSONExtractKeysAndValuesRaw(request, 'workload', 'load'),
                            JSONExtractKeysAndValuesRaw(request, 'workload', 'content'),
                            JSONExtractKeysAndValuesRaw(request, 'workload', 'faults'),
                            JSONExtractKeysAndValuesRaw(request, 'workload', 'windows')
                        )
                    ),
                    arrayMap(
                        name -> concat(name, ' ', JSONExtractRaw(request, 'workload', name)),
                        ['transport', 'kills', 'pipelines_start_s', 'search']
                    ),
                    [concat('turns ', JSONExtractRaw(request, 'interleaved', 'block_s'))]
                )
            )
        ),
        ', '
    ) AS settings,
    concat(
        JSONExtractString(request, 'environment', 'processor'), ', ',
        toString(JSONExtractFloat(request, 'environment', 'cores')), ' cores, ',
        toString(round(JSONExtractInt(request, 'environment', 'memory_bytes') / 1e9)), ' GB'
    ) AS machine,
    concat(
        workload, ', ', domain, ', ', toString(rate_per_second), '/s, ',
        multiIf(
            settings = '', '',
            length(settings) <= 60, concat(replaceAll(settings, '"', ''), ', '),
            concat('settings ', left(lower(hex(sipHash64(settings))), 8), ', ')
        ),
        machine
    ) AS load
FROM
(
    SELECT
        run_id,
        minIf(e.time, event = 'run_requested') AS requested_at,
        argMinIf(detail, (e.time, e._offset), event = 'run_requested') AS request,
        anyOrNullIf(
            JSONExtractFloat(detail, 'request', 'workload', 'load', 'rate_per_second'),
            event = 'preparing' AND JSONHas(detail, 'request', 'workload')
        ) AS prepared_rate
    FROM tidegauge.results_lifecycle AS e
    WHERE event IN ('run_requested', 'preparing')
    GROUP BY run_id
)
WHERE request != '' AND JSONExtractString(request, 'step_of') = ''
COMMENT 'One row per run that is not a step of a search: its load and machine. settings: non-default load settings. Runs with the same load are comparable';

ALTER TABLE tidegauge.run_loads
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN requested_at 'When the run was requested',
    COMMENT COLUMN pipelines 'Names of its pipelines',
    COMMENT COLUMN workload 'Name of the workload',
    COMMENT COLUMN domain 'Name of the domain',
    COMMENT COLUMN rate_per_second 'Rate of the load, records per second: as requested, or as found by a search',
    COMMENT COLUMN settings 'Settings of the load that are not defaults',
    COMMENT COLUMN machine 'Processor, cores and memory',
    COMMENT COLUMN load 'All of these; runs with the same load are comparable';
