"""The Spark engine: stages of a domain as PySpark Structured Streaming queries.

`driver` is the process of one pipeline: `session` makes the SparkSession, `stages` define the
computation, `queries` set source, watermark, trigger and sink, `progress` reports.
"""
