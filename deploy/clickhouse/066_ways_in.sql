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
