-- Column of results_resources.v4, for tables created before it.

ALTER TABLE tidegauge.results_resources
    ADD COLUMN IF NOT EXISTS heap_max_bytes Nullable(Int64)
        COMMENT 'Size to which the Java heap may grow'
        CODEC(T64, ZSTD(1))
        AFTER heap_capacity_bytes;
