-- Columns of results_generator.v2, for tables created before them.

ALTER TABLE tidegauge.results_generator
    ADD COLUMN IF NOT EXISTS queue_full_us Int64
        COMMENT 'Time that records which were due waited because the client''s queue was full, summed over the records, microseconds'
        CODEC(T64, ZSTD(1))
        AFTER counts;
