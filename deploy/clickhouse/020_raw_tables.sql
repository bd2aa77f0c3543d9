-- One table per topic of the results bus and one of dead letters; columns as in schemas/avro/.
-- `_topic`, `_partition` and `_offset` identify the Kafka record of a row. The store resumes after
-- the greatest offset, which the projection `resume` returns without a scan.
-- A record with paired arrays (values and their counts) becomes one row per value if it contains
-- nothing else (results_latency). It keeps its arrays if it also contains counts that must not be
-- repeated (results_generator; see the view generator_send_delays).
-- Old data is dropped in whole parts of a month: services/store/engines/schema.py sets the TTL from the
-- settings.

CREATE TABLE IF NOT EXISTS tidegauge.results_lifecycle
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    event LowCardinality(String)
        COMMENT 'Name of the event; see schemas/protocol.py'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline the event is about, or empty'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'Stage the event is about, or empty'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase that began, for phase_started, or empty'
        CODEC(ZSTD(1)),
    detail String
        COMMENT 'JSON: what else is known, for example the whole workload and environment'
        CODEC(ZSTD(3)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, `time`, _partition, _offset)
COMMENT 'What happened in a run, and to the services';

CREATE TABLE IF NOT EXISTS tidegauge.results_latency
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline name'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'A stage of the run, as run_stages lists them'
        CODEC(ZSTD(1)),
    definition LowCardinality(String)
        COMMENT 'latest, mean or event_time'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase in which the latest contributing input was scheduled'
        CODEC(ZSTD(1)),
    second DateTime64(3, 'UTC')
        COMMENT 'Second of output LogAppendTime'
        CODEC(Delta(8), ZSTD(1)),
    latency_ms Int64
        COMMENT 'Latency, milliseconds; may be negative'
        CODEC(T64, ZSTD(1)),
    `count` UInt64
        COMMENT 'How many outputs had it'
        CODEC(T64, ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    INDEX second_range second TYPE minmax GRANULARITY 1,
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, pipeline, stage, definition, second, latency_ms)
COMMENT 'Exact count of every millisecond of latency per second of output time, one row per value. Counts add up';

CREATE TABLE IF NOT EXISTS tidegauge.results_throughput
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    topic LowCardinality(String)
        COMMENT 'Topic the records were counted in'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline of an output topic; empty for an input topic'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'Stage of an output topic; empty for an input topic'
        CODEC(ZSTD(1)),
    second DateTime64(3, 'UTC')
        COMMENT 'Second of LogAppendTime'
        CODEC(Delta(8), ZSTD(1)),
    records Int64
        COMMENT 'Records of this run, without those of aborted transactions'
        CODEC(T64, ZSTD(1)),
    bytes Int64
        COMMENT 'Bytes of their values'
        CODEC(T64, ZSTD(1)),
    aborted Int64 DEFAULT 0
        COMMENT 'Records of aborted transactions, of an output topic; of any run'
        CODEC(T64, ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, pipeline, stage, topic, second)
COMMENT 'Records of one topic in one second of LogAppendTime. Counts add up';

ALTER TABLE tidegauge.results_throughput
    ADD COLUMN IF NOT EXISTS aborted Int64 DEFAULT 0
        COMMENT 'Records of aborted transactions, of an output topic; of any run'
        CODEC(T64, ZSTD(1))
        AFTER bytes;

CREATE TABLE IF NOT EXISTS tidegauge.results_verdicts
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline name'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'A stage of the run, as run_stages lists them'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase in which the latest contributing input was scheduled'
        CODEC(ZSTD(1)),
    second DateTime64(3, 'UTC')
        COMMENT 'Second of output LogAppendTime; for a missing output, of its latest input'
        CODEC(Delta(8), ZSTD(1)),
    exact Int64
        COMMENT 'As the inputs imply, in time'
        CODEC(T64, ZSTD(1)),
    wrong Int64
        COMMENT 'Published, in time, with other values'
        CODEC(T64, ZSTD(1)),
    missing Int64
        COMMENT 'Expected and did not arrive'
        CODEC(T64, ZSTD(1)),
    late Int64
        COMMENT 'Came after the deadline'
        CODEC(T64, ZSTD(1)),
    duplicate Int64
        COMMENT 'Arrived again after its first output'
        CODEC(T64, ZSTD(1)),
    unexpected Int64
        COMMENT 'No input explains it'
        CODEC(T64, ZSTD(1)),
    samples Array(String)
        COMMENT 'JSON of some offenders, with expected and actual values; bounded'
        CODEC(ZSTD(3)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, pipeline, stage, phase, second)
COMMENT 'Verdicts on outputs in one second. Counts add up';

CREATE TABLE IF NOT EXISTS tidegauge.results_generator
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    phase LowCardinality(String)
        COMMENT 'Phase of the second'
        CODEC(ZSTD(1)),
    second DateTime64(3, 'UTC')
        COMMENT 'Second of scheduled time'
        CODEC(Delta(8), ZSTD(1)),
    intended Int64
        COMMENT 'Records due'
        CODEC(T64, ZSTD(1)),
    sent Int64
        COMMENT 'Records handed to the client'
        CODEC(T64, ZSTD(1)),
    acknowledged Int64
        COMMENT 'Records the broker confirmed'
        CODEC(T64, ZSTD(1)),
    failed Int64
        COMMENT 'Records given up'
        CODEC(T64, ZSTD(1)),
    send_delays_us Array(Int64)
        COMMENT 'Distinct send delays (sent - scheduled), microseconds, rounded down to 100'
        CODEC(ZSTD(1)),
    counts Array(UInt64)
        COMMENT 'How often each occurred; same length'
        CODEC(ZSTD(1)),
    queue_full_us Int64
        COMMENT 'Time that records which were due waited because the client''s queue was full, summed over the records, microseconds'
        CODEC(T64, ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, phase, second)
COMMENT 'What one generator did for the records of one second of scheduled time. Counts add up';

CREATE TABLE IF NOT EXISTS tidegauge.results_pipeline
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline name'
        CODEC(ZSTD(1)),
    stage LowCardinality(String)
        COMMENT 'A stage of the run, as run_stages lists them'
        CODEC(ZSTD(1)),
    batch_id Int64
        COMMENT 'Micro-batch or epoch'
        CODEC(T64, ZSTD(1)),
    input_rows Int64
        COMMENT 'Rows read'
        CODEC(T64, ZSTD(1)),
    input_rows_per_second Nullable(Float64)
        COMMENT 'As the engine reports it'
        CODEC(ZSTD(1)),
    processed_rows_per_second Nullable(Float64)
        COMMENT 'As the engine reports it'
        CODEC(ZSTD(1)),
    batch_duration_ms Nullable(Int64)
        COMMENT 'Whole batch'
        CODEC(ZSTD(1)),
    state_rows Nullable(Int64)
        COMMENT 'Rows in the state stores'
        CODEC(ZSTD(1)),
    state_bytes Nullable(Int64)
        COMMENT 'Memory the state stores use'
        CODEC(ZSTD(1)),
    watermark Nullable(DateTime64(3, 'UTC'))
        COMMENT 'Event-time watermark'
        CODEC(ZSTD(1)),
    lag_records Nullable(Int64)
        COMMENT 'Records of its inputs that it has not read yet'
        CODEC(T64, ZSTD(1)),
    detail String
        COMMENT 'JSON of the whole progress report'
        CODEC(ZSTD(3)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, pipeline, stage, `time`)
COMMENT 'Progress of one streaming query as the engine reports it';

CREATE TABLE IF NOT EXISTS tidegauge.results_resources
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    service LowCardinality(String)
        COMMENT 'Service, or machine for the whole machine'
        CODEC(ZSTD(1)),
    pipeline LowCardinality(String)
        COMMENT 'Pipeline the processes serve, or empty'
        CODEC(ZSTD(1)),
    interval_s Float64
        COMMENT 'Length of the interval, seconds'
        CODEC(ZSTD(1)),
    cpu_seconds Float64
        COMMENT 'Processor time used in the interval'
        CODEC(ZSTD(1)),
    memory_bytes Int64
        COMMENT 'Resident memory at its end; for the machine, memory in use'
        CODEC(T64, ZSTD(1)),
    processes Int32
        COMMENT 'Number of processes'
        CODEC(ZSTD(1)),
    threads Int32
        COMMENT 'Number of threads'
        CODEC(ZSTD(1)),
    read_bytes Nullable(Int64)
        COMMENT 'Bytes read from disks in the interval'
        CODEC(T64, ZSTD(1)),
    written_bytes Nullable(Int64)
        COMMENT 'Bytes written to disks in the interval'
        CODEC(T64, ZSTD(1)),
    received_bytes Nullable(Int64)
        COMMENT 'Bytes received in the interval: by the machine over its networks, by a pipeline over the TCP connections of its processes'
        CODEC(T64, ZSTD(1)),
    sent_bytes Nullable(Int64)
        COMMENT 'Bytes sent in the interval: by the machine over its networks, by a pipeline over the TCP connections of its processes'
        CODEC(T64, ZSTD(1)),
    open_files Nullable(Int32)
        COMMENT 'Number of open files and sockets'
        CODEC(T64, ZSTD(1)),
    heap_used_bytes Nullable(Int64)
        COMMENT 'Java heap in use, of the processes that are JVMs'
        CODEC(T64, ZSTD(1)),
    heap_capacity_bytes Nullable(Int64)
        COMMENT 'Java heap that is reserved now'
        CODEC(T64, ZSTD(1)),
    heap_max_bytes Nullable(Int64)
        COMMENT 'Size to which the Java heap may grow'
        CODEC(T64, ZSTD(1)),
    gc_seconds Nullable(Float64)
        COMMENT 'Time that garbage collectors spent in the interval'
        CODEC(ZSTD(1)),
    gc_count Nullable(Int64)
        COMMENT 'Collections that ended in the interval'
        CODEC(T64, ZSTD(1)),
    jit_seconds Nullable(Float64)
        COMMENT 'Time that just-in-time compilers spent in the interval, all their threads together'
        CODEC(ZSTD(1)),
    load_1m Nullable(Float64)
        COMMENT 'Load average of a minute; of the machine only'
        CODEC(ZSTD(1)),
    frequency_mhz Nullable(Float64)
        COMMENT 'Mean processor frequency now; of the machine only'
        CODEC(ZSTD(1)),
    steal_seconds Nullable(Float64)
        COMMENT 'Processor time that the hypervisor gave to others in the interval; of the machine only'
        CODEC(ZSTD(1)),
    cpu_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for a processor; of the machine only'
        CODEC(ZSTD(1)),
    io_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for a disk; of the machine only'
        CODEC(ZSTD(1)),
    memory_pressure_seconds Nullable(Float64)
        COMMENT 'Time in the interval in which some task waited for memory; of the machine only'
        CODEC(ZSTD(1)),
    run_queue_wait_seconds Nullable(Float64)
        COMMENT 'Time in the interval that its threads, all together, were ready to run and waited for a processor'
        CODEC(ZSTD(1)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, service, pipeline, `time`)
COMMENT 'What one service used in one interval, all its processes together';

CREATE TABLE IF NOT EXISTS tidegauge.results_conclusions
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    kind LowCardinality(String)
        COMMENT 'run, sustainable_throughput, search_step, change_point, repetition, interleaved or baseline'
        CODEC(ZSTD(1)),
    valid Bool
        COMMENT 'Whether the conclusion may be used'
        CODEC(ZSTD(1)),
    invalid_reasons Array(String)
        COMMENT 'One sentence each; empty when valid'
        CODEC(ZSTD(3)),
    detail String
        COMMENT 'JSON of the evidence'
        CODEC(ZSTD(3)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (run_id, `time`, _partition, _offset)
COMMENT 'What was concluded, for example whether a run is valid';

CREATE TABLE IF NOT EXISTS tidegauge.dead_letter
(
    run_id LowCardinality(String)
        COMMENT 'Run the event belongs to; empty where it belongs to none'
        CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC')
        COMMENT 'When the event was produced'
        CODEC(Delta(8), ZSTD(1)),
    producer LowCardinality(String)
        COMMENT 'Service instance that produced it'
        CODEC(ZSTD(1)),
    topic LowCardinality(String)
        COMMENT 'Topic it was read from, or file'
        CODEC(ZSTD(1)),
    `partition` Int32
        COMMENT 'Partition, or -1'
        CODEC(ZSTD(1)),
    `offset` Int64
        COMMENT 'Offset or line, or -1'
        CODEC(Delta(8), ZSTD(1)),
    reason String
        COMMENT 'Why, in one sentence'
        CODEC(ZSTD(3)),
    key Nullable(String)
        COMMENT 'Original key, bytes'
        CODEC(ZSTD(3)),
    value Nullable(String)
        COMMENT 'Original value, bytes'
        CODEC(ZSTD(3)),
    _topic LowCardinality(String)
        COMMENT 'Kafka topic the row was projected from'
        CODEC(ZSTD(1)),
    _partition Int32
        COMMENT 'Kafka partition'
        CODEC(ZSTD(1)),
    _offset Int64
        COMMENT 'Kafka offset; all rows of one record arrive in one insert'
        CODEC(Delta(8), ZSTD(1)),
    PROJECTION resume
    (
        SELECT _topic, _partition, max(_offset)
        GROUP BY _topic, _partition
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(`time`)
ORDER BY (topic, `partition`, `offset`, `time`)
COMMENT 'Records that could not be used, kept whole';
