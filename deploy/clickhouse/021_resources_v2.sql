-- Columns of results_resources.v2, for tables created before them.

ALTER TABLE tidegauge.results_resources
    ADD COLUMN IF NOT EXISTS read_bytes Nullable(Int64)
        COMMENT 'Bytes read from disks in the interval'
        CODEC(T64, ZSTD(1))
        AFTER threads,
    ADD COLUMN IF NOT EXISTS written_bytes Nullable(Int64)
        COMMENT 'Bytes written to disks in the interval'
        CODEC(T64, ZSTD(1))
        AFTER read_bytes,
    ADD COLUMN IF NOT EXISTS received_bytes Nullable(Int64)
        COMMENT 'Bytes received over networks in the interval; of the machine only'
        CODEC(T64, ZSTD(1))
        AFTER written_bytes,
    ADD COLUMN IF NOT EXISTS sent_bytes Nullable(Int64)
        COMMENT 'Bytes sent over networks in the interval; of the machine only'
        CODEC(T64, ZSTD(1))
        AFTER received_bytes,
    ADD COLUMN IF NOT EXISTS open_files Nullable(Int32)
        COMMENT 'Number of open files and sockets'
        CODEC(T64, ZSTD(1))
        AFTER sent_bytes,
    ADD COLUMN IF NOT EXISTS heap_used_bytes Nullable(Int64)
        COMMENT 'Java heap in use, of the processes that are JVMs'
        CODEC(T64, ZSTD(1))
        AFTER open_files,
    ADD COLUMN IF NOT EXISTS heap_capacity_bytes Nullable(Int64)
        COMMENT 'Java heap that is reserved now'
        CODEC(T64, ZSTD(1))
        AFTER heap_used_bytes,
    ADD COLUMN IF NOT EXISTS gc_seconds Nullable(Float64)
        COMMENT 'Time that garbage collectors spent in the interval'
        CODEC(ZSTD(1))
        AFTER heap_capacity_bytes,
    ADD COLUMN IF NOT EXISTS gc_count Nullable(Int64)
        COMMENT 'Collections that ended in the interval'
        CODEC(T64, ZSTD(1))
        AFTER gc_seconds,
    ADD COLUMN IF NOT EXISTS load_1m Nullable(Float64)
        COMMENT 'Load average of a minute; of the machine only'
        CODEC(ZSTD(1))
        AFTER gc_count,
    ADD COLUMN IF NOT EXISTS frequency_mhz Nullable(Float64)
        COMMENT 'Mean processor frequency now; of the machine only'
        CODEC(ZSTD(1))
        AFTER load_1m,
    ADD COLUMN IF NOT EXISTS steal_seconds Nullable(Float64)
        COMMENT 'Processor time that the hypervisor gave to others in the interval; of the machine only'
        CODEC(ZSTD(1))
        AFTER frequency_mhz,
    ADD COLUMN IF NOT EXISTS cpu_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for a processor; of the machine only'
        CODEC(ZSTD(1))
        AFTER steal_seconds,
    ADD COLUMN IF NOT EXISTS io_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for a disk; of the machine only'
        CODEC(ZSTD(1))
        AFTER cpu_pressure_seconds,
    ADD COLUMN IF NOT EXISTS memory_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for memory; of the machine only'
        CODEC(ZSTD(1))
        AFTER io_pressure_seconds;
