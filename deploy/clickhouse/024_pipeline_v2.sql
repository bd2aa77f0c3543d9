-- Columns of results_pipeline.v2, for tables created before them.

ALTER TABLE tidegauge.results_pipeline
    ADD COLUMN IF NOT EXISTS lag_records Nullable(Int64)
        COMMENT 'Records of its inputs that it has not read yet'
        CODEC(T64, ZSTD(1))
        AFTER watermark;
