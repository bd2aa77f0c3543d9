-- Results of commands about several runs: repetitions, and comparisons.

CREATE OR REPLACE VIEW tidegauge.repetitions AS
SELECT
    run_id,
    c.time AS time,
    JSONExtract(detail, 'runs', 'Array(String)') AS runs,
    JSONExtractString(row, 'pipeline') AS pipeline,
    JSONExtractString(row, 'stage') AS stage,
    JSONExtractString(row, 'definition') AS definition,
    JSONExtractString(row, 'figure') AS figure,
    JSONExtractFloat(row, 'median') AS median,
    JSONExtract(row, 'low', 'Nullable(Float64)') AS low,
    JSONExtract(row, 'high', 'Nullable(Float64)') AS high,
    JSONExtract(row, 'confidence', 'Nullable(Float64)') AS confidence,
    JSONExtractUInt(row, 'count') AS valid_runs
FROM tidegauge.results_conclusions AS c
ARRAY JOIN JSONExtractArrayRaw(detail, 'rows') AS row
WHERE kind = 'repetition'
COMMENT 'Results of run --repeat: one row per pipeline, stage and figure, with its median over the valid runs';

ALTER TABLE tidegauge.repetitions
    COMMENT COLUMN run_id 'The median run; the last run if none is valid',
    COMMENT COLUMN time 'When the last run had ended',
    COMMENT COLUMN runs 'All runs, in order',
    COMMENT COLUMN pipeline 'The pipeline',
    COMMENT COLUMN stage 'The stage; empty for a figure of the pipeline',
    COMMENT COLUMN definition 'Definition of latency: latest, mean, event_time, window_time, visible or processing_time; empty for other figures',
    COMMENT COLUMN figure 'A percentile (p50) or mean of the latency, milliseconds; core_seconds_per_million_records; or sustainable_rate_per_second',
    COMMENT COLUMN median 'Median of the figure over the valid runs',
    COMMENT COLUMN low 'Lower bound of its interval, or of the capacity; NULL for a single run',
    COMMENT COLUMN high 'Upper bound of its interval, or of the capacity; NULL for a single run',
    COMMENT COLUMN confidence 'Confidence of the interval, 0 to 1; NULL for a single run or a rate',
    COMMENT COLUMN valid_runs 'Number of valid runs with the figure';

CREATE OR REPLACE VIEW tidegauge.comparisons AS
SELECT
    run_id,
    c.time AS time,
    toString(kind) AS kind,
    JSONExtract(detail, 'runs', 'Array(String)') AS runs,
    JSONExtractString(detail, 'against') AS against,
    JSONExtractString(row, 'pipeline') AS pipeline,
    JSONExtractString(row, 'stage') AS stage,
    JSONExtractString(row, 'figure') AS figure,
    JSONExtractFloat(row, 'before') AS before,
    JSONExtractFloat(row, 'after') AS after,
    JSONExtractString(row, 'unit') AS unit,
    JSONExtractFloat(row, 'value') AS difference,
    JSONExtract(row, 'low', 'Nullable(Float64)') AS low,
    JSONExtract(row, 'high', 'Nullable(Float64)') AS high,
    JSONExtractString(row, 'verdict') AS verdict,
    JSONExtractString(detail, 'said') AS said
FROM tidegauge.results_conclusions AS c
LEFT ARRAY JOIN JSONExtractArrayRaw(detail, 'rows') AS row
WHERE kind IN ('interleaved', 'baseline')
COMMENT 'Results of run --interleave and run --baseline: one row per figure; a single row without a figure if nothing could be compared';

ALTER TABLE tidegauge.comparisons
    COMMENT COLUMN run_id 'The run; of several the median run',
    COMMENT COLUMN time 'When the last run had ended',
    COMMENT COLUMN kind 'interleaved: two pipelines measured alternately; baseline: with an earlier report',
    COMMENT COLUMN runs 'The runs whose blocks were used',
    COMMENT COLUMN against 'The first pipeline, or the name of the baseline',
    COMMENT COLUMN pipeline 'The second pipeline, or the pipeline of the run',
    COMMENT COLUMN stage 'The stage; empty for a figure of the pipeline',
    COMMENT COLUMN figure 'The figure',
    COMMENT COLUMN before 'Its value in the first pipeline or the baseline',
    COMMENT COLUMN after 'Its value in the second pipeline or the run',
    COMMENT COLUMN unit 'Unit of these values',
    COMMENT COLUMN difference 'The difference; without the extreme tenths of the pairs of blocks',
    COMMENT COLUMN low 'Lower bound of the difference; NULL with a baseline',
    COMMENT COLUMN high 'Upper bound of the difference; NULL with a baseline',
    COMMENT COLUMN verdict 'worse, better, same or unknown; described: not decided',
    COMMENT COLUMN said 'The result in words';
