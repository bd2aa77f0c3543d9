"""The system under test: the stages 0-4 as PySpark Structured Streaming queries.

`__main__` is the agent: it waits for commands and runs one driver process per pipeline. `driver`
is that process: `session` makes the SparkSession, `stages` say what is computed, `queries` say how
it runs (source, watermark, trigger, sink), `progress` reports. Only the driver imports pyspark.
"""
