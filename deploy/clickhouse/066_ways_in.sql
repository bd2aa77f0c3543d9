-- How records arrived through the gateway.

CREATE OR REPLACE VIEW tidegauge.ways_in AS
SELECT
    e.run_id AS run_id,
    max(e.time) AS told_at,
    argMax(JSONExtractString(detail, 'transport'), e.time) AS transport,
    argMax(JSONExtractInt(detail, 'sent'), e.time) AS sent,
    argMax(JSONExtractInt(detail, 'received'), e.time) AS received,
    argMax(JSONExtractInt(detail, 'appended'), e.time) AS appended,
    argMax(JSONExtractInt(detail, 'lost'), e.time) AS lost,
    argMax(JSONExtractInt(detail, 'not_appended'), e.time) AS not_appended,
    argMax(JSONExtractInt(detail, 'duplicates'), e.time) AS duplicates,
    argMax(JSONExtractInt(detail, 'refused'), e.time) AS refused,
    argMax(JSONExtract(detail, 'transit_us', 'p50', 'Nullable(Int64)'), e.time) AS transit_p50_us,
    argMax(JSONExtract(detail, 'transit_us', 'p99', 'Nullable(Int64)'), e.time) AS transit_p99_us,
    argMax(JSONExtract(detail, 'append_ms', 'p50', 'Nullable(Int64)'), e.time) AS append_p50_ms,
    argMax(JSONExtract(detail, 'append_ms', 'p99', 'Nullable(Int64)'), e.time) AS append_p99_ms
FROM tidegauge.results_lifecycle AS e
WHERE e.event = 'way_in'
GROUP BY e.run_id
COMMENT 'One row per run through the gateway: frames sent, received, appended and lost in all phases, and their transit times';

ALTER TABLE tidegauge.ways_in
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN told_at 'When the gateway last reported',
    COMMENT COLUMN transport 'tcp, udp or zeromq',
    COMMENT COLUMN sent 'Frames sent',
    COMMENT COLUMN received 'Frames that the gateway received',
    COMMENT COLUMN appended 'Frames written to Kafka',
    COMMENT COLUMN lost 'Frames lost on the way to the gateway',
    COMMENT COLUMN not_appended 'Frames received and not written to Kafka',
    COMMENT COLUMN duplicates 'Frames received more than once',
    COMMENT COLUMN refused 'Received data that is no frame of the run',
    COMMENT COLUMN transit_p50_us 'Median time from sending to receiving, microseconds',
    COMMENT COLUMN transit_p99_us '99th percentile of the same',
    COMMENT COLUMN append_p50_ms 'Median time from receiving to the append in Kafka, milliseconds',
    COMMENT COLUMN append_p99_ms '99th percentile of the same';

-- How a system behind sockets was fed and answered, and what was lost on the whole way.

CREATE OR REPLACE VIEW tidegauge.socket_latencies AS
SELECT
    e.run_id AS run_id,
    e.pipeline AS pipeline,
    e.stage AS stage,
    argMax(JSONExtractUInt(detail, 'count'), e.time) AS count,
    argMax(JSONExtractUInt(detail, 'unknown'), e.time) AS unknown,
    argMax(JSONExtract(detail, 'latency_ns', 'min', 'Nullable(Int64)'), e.time) AS min_ns,
    argMax(JSONExtract(detail, 'latency_ns', '{percentile}', 'Nullable(Int64)'), e.time) AS {percentile}_ns,
    argMax(JSONExtract(detail, 'latency_ns', 'max', 'Nullable(Int64)'), e.time) AS max_ns,
    argMax(JSONExtract(detail, 'latency_ns', 'mean', 'Nullable(Float64)'), e.time) AS mean_ns
FROM tidegauge.results_lifecycle AS e
WHERE e.event = 'socket_latency'
GROUP BY e.run_id, e.pipeline, e.stage
COMMENT 'Latency of stages behind sockets in the measure phase: from sending the latest contributing record to receiving the result, nanoseconds of one monotonic clock';

ALTER TABLE tidegauge.socket_latencies
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN count 'Number of outputs',
    COMMENT COLUMN unknown 'Outputs without such a time',
    COMMENT COLUMN min_ns 'Lowest latency, nanoseconds',
    COMMENT COLUMN {percentile}_ns '{title} latency, nanoseconds, nearest rank',
    COMMENT COLUMN max_ns 'Highest latency, nanoseconds',
    COMMENT COLUMN mean_ns 'Mean latency, nanoseconds';

CREATE OR REPLACE VIEW tidegauge.losses AS
SELECT
    v.run_id AS run_id,
    v.pipeline AS pipeline,
    v.stage AS stage,
    v.transport AS transport,
    v.received + v.missing AS due,
    v.received AS received,
    v.missing + if(v.is_socket, 0, v.lost_frames) AS lost,
    if(v.is_socket, if(v.told_received < 0, NULL, greatest(0, v.acknowledged - v.told_received)), v.lost_frames) AS lost_before,
    if(v.is_socket, if(v.told_sent < 0, NULL, greatest(0, v.told_sent - v.came)), 0) AS lost_after,
    multiIf(
        NOT v.is_socket, v.missing,
        isNull(lost_before) OR isNull(lost_after), NULL,
        lost_before = 0 OR due = v.acknowledged, v.missing - lost_before - lost_after,
        NULL
    ) AS lost_inside
FROM
(
    SELECT
        c.run_id AS run_id,
        c.pipeline AS pipeline,
        c.stage AS stage,
        c.received AS received,
        c.missing AS missing,
        s.run_id != '' AS is_socket,
        if(is_socket, s.transport, w.transport) AS transport,
        toInt64(w.lost + w.not_appended) AS lost_frames,
        g.acknowledged AS acknowledged,
        ifNull(s.frames_received, -1) AS told_received,
        ifNull(s.sent[c.stage], -1) AS told_sent,
        toInt64(s.received[c.stage]) AS came
    FROM
    (
        SELECT
            r.run_id AS run_id,
            r.pipeline AS pipeline,
            r.stage AS stage,
            toInt64(sum(r.exact) + sum(r.wrong) + sum(r.late)) AS received,
            toInt64(sum(r.missing)) AS missing
        FROM tidegauge.results_verdicts AS r
        GROUP BY r.run_id, r.pipeline, r.stage
    ) AS c
    LEFT JOIN tidegauge.ways_in AS w ON w.run_id = c.run_id
    LEFT JOIN
    (
        SELECT
            e.run_id AS run_id,
            e.pipeline AS pipeline,
            argMax(JSONExtractString(detail, 'transport'), e.time) AS transport,
            argMax(JSONExtract(detail, 'frames_received', 'Nullable(Int64)'), e.time) AS frames_received,
            argMax(JSONExtract(detail, 'sent', 'Map(String, Nullable(Int64))'), e.time) AS sent,
            argMax(JSONExtract(detail, 'received', 'Map(String, Int64)'), e.time) AS received
        FROM tidegauge.results_lifecycle AS e
        WHERE e.event = 'results_received'
        GROUP BY e.run_id, e.pipeline
    ) AS s ON s.run_id = c.run_id AND s.pipeline = c.pipeline
    LEFT JOIN
    (
        SELECT p.run_id AS run_id, toInt64(sum(p.acknowledged)) AS acknowledged
        FROM tidegauge.results_generator AS p
        GROUP BY p.run_id
    ) AS g ON g.run_id = c.run_id
    WHERE w.run_id != '' OR s.run_id != ''
) AS v
COMMENT 'What was lost of the whole load of runs over the network, by stage: records before the system, results in it and after it';

ALTER TABLE tidegauge.losses
    COMMENT COLUMN run_id 'The run',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage',
    COMMENT COLUMN transport 'tcp, udp or zeromq',
    COMMENT COLUMN due 'Results due from the records in the input topics; of a stage with windows, those judged',
    COMMENT COLUMN received 'Distinct ones that came, right or wrong',
    COMMENT COLUMN lost 'Results due that did not come, and records that did not reach the input topics, which count as one each',
    COMMENT COLUMN lost_before 'Records lost before the system; NULL if the system behind sockets did not tell what it received',
    COMMENT COLUMN lost_after 'Results that the system behind sockets sent and that did not arrive; NULL if it did not tell what it sent',
    COMMENT COLUMN lost_inside 'Results due for records that the system received, and that it did not send; NULL if that is not known';
