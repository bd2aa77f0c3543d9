-- Columns of results_resources.v3, for tables created before them.

ALTER TABLE tidegauge.results_resources
    ADD COLUMN IF NOT EXISTS jit_seconds Nullable(Float64)
        COMMENT 'Time that just-in-time compilers spent in the interval, all their threads together'
        CODEC(ZSTD(1))
        AFTER gc_count,
    ADD COLUMN IF NOT EXISTS run_queue_wait_seconds Nullable(Float64)
        COMMENT 'Time in the interval that its threads, all together, were ready to run and waited for a processor'
        CODEC(ZSTD(1))
        AFTER memory_pressure_seconds;
