"""The system under test: the stages 0-4 as PySpark Structured Streaming queries.

`driver` is the process of one pipeline: `session` makes the SparkSession, `stages` say what is
computed, `queries` say how it runs (source, watermark, trigger, sink), `progress` reports.
"""
