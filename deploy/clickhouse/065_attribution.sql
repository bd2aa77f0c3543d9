-- Causes of the late seconds of a run, and whether every component had headroom.

CREATE OR REPLACE VIEW tidegauge.run_attribution AS
SELECT
    run_id,
    k.time AS time,
    JSONExtract(k.detail, 'disturbed', 'Nullable(Bool)') AS disturbed,
    JSONExtract(k.detail, 'late', 'disturbed_by', 'Array(String)') AS disturbed_by,
    JSONExtractUInt(k.detail, 'late', 'of_seconds') AS seconds,
    JSONExtractUInt(k.detail, 'late', 'seconds') AS late_seconds,
    JSONExtract(k.detail, 'late', 'by', 'Map(String, UInt64)') AS late_by,
    JSONExtractString(k.detail, 'late', 'said') AS said
FROM
(
    SELECT run_id, time, detail
    FROM tidegauge.results_conclusions
    WHERE kind = 'run' AND JSONHas(detail, 'late')
    ORDER BY run_id, time DESC, _offset DESC
    LIMIT 1 BY run_id
) AS k
COMMENT 'One row per run: the number of late seconds, their causes, and what disturbed the run. NULL: not enough data';

CREATE OR REPLACE VIEW tidegauge.run_room AS
SELECT
    run_id,
    entry.1 AS part,
    JSONExtract(entry.2, 'cpu_cores', 'Nullable(Float64)') AS cpu_cores,
    JSONExtract(entry.2, 'cpu_share', 'Nullable(Float64)') AS cpu_share,
    JSONExtract(entry.2, 'waiting_share', 'Nullable(Float64)') AS waiting_share,
    JSONExtract(entry.2, 'steal_share', 'Nullable(Float64)') AS steal_share,
    JSONExtract(entry.2, 'cpu_pressure_share', 'Nullable(Float64)') AS cpu_pressure_share,
    JSONExtract(entry.2, 'others_cores', 'Nullable(Float64)') AS others_cores,
    JSONExtract(entry.2, 'saturated', 'Nullable(Bool)') AS saturated
FROM
(
    SELECT run_id, detail
    FROM tidegauge.results_conclusions
    WHERE kind = 'run' AND JSONHas(detail, 'room')
    ORDER BY run_id, time DESC, _offset DESC
    LIMIT 1 BY run_id
) AS k
ARRAY JOIN JSONExtractKeysAndValuesRaw(k.detail, 'room') AS entry
COMMENT 'One row per run and part, including the machine: cores used in the measured phase, their share of the machine, and the share of the runnable time of the part that it waited for a core';

CREATE OR REPLACE VIEW tidegauge.run_floor AS
SELECT
    substring(l.run_id, 1, length(l.run_id) - length('-floor')) AS run_id,
    l.count AS outputs,
    p50_ms,
    p90_ms,
    p95_ms,
    p99_ms,
    max_ms,
    mean_ms
FROM tidegauge.latency_summary AS l
WHERE endsWith(l.run_id, '-floor') AND phase = 'measure' AND definition = 'latest'
COMMENT 'One row per run with a floor: the latency of a plain copy measured before the run';
