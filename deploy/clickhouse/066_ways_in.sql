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
