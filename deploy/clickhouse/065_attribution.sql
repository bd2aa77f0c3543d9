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

ALTER TABLE tidegauge.run_attribution
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN time 'When the run was concluded',
    COMMENT COLUMN disturbed 'Whether anything but the pipelines caused late seconds; NULL if unknown',
    COMMENT COLUMN disturbed_by 'Causes of late seconds that are not a pipeline',
    COMMENT COLUMN seconds 'Measured seconds',
    COMMENT COLUMN late_seconds 'Seconds whose outputs were late',
    COMMENT COLUMN late_by 'Late seconds by their cause',
    COMMENT COLUMN said 'The same as a sentence';

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

ALTER TABLE tidegauge.run_room
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN part 'Part of the stack, or the machine',
    COMMENT COLUMN cpu_cores 'Mean number of cores used in the measured phase',
    COMMENT COLUMN cpu_share 'Share of the cores of the machine, 0 to 1',
    COMMENT COLUMN waiting_share 'Share of its runnable time in which it waited for a core',
    COMMENT COLUMN steal_share 'Share of the CPU time that the host gave to other machines',
    COMMENT COLUMN cpu_pressure_share 'Share of the time in which a task waited for a core',
    COMMENT COLUMN others_cores 'Cores used by processes outside the stack',
    COMMENT COLUMN saturated 'Whether it had no room left; only of the machine, NULL of the parts';

CREATE OR REPLACE VIEW tidegauge.run_floor AS
SELECT
    substring(l.run_id, 1, length(l.run_id) - length('-floor')) AS run_id,
    l.count AS outputs,
    {percentile}_ms,
    max_ms,
    mean_ms
FROM tidegauge.latency_summary AS l
WHERE endsWith(l.run_id, '-floor') AND phase = 'measure' AND definition = 'latest'
    AND l.run_id IN (SELECT run_id FROM tidegauge.results_conclusions WHERE kind = 'run' AND valid)
COMMENT 'One row per run with a valid floor: the latency of a plain copy measured before the run';

ALTER TABLE tidegauge.run_floor
    COMMENT COLUMN run_id 'The run before which the floor was measured',
    COMMENT COLUMN outputs 'Number of copies',
    COMMENT COLUMN {percentile}_ms '{title} latency, milliseconds, nearest rank',
    COMMENT COLUMN max_ms 'Highest latency, milliseconds',
    COMMENT COLUMN mean_ms 'Mean latency, milliseconds';
