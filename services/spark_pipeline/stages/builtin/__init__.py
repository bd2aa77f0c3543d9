"""Stateful kinds with Spark's operators: stream-stream joins, and windows closed by the watermark
(append mode).

Each input is a DataFrame with its own watermark: the stage's watermark is the lowest of them, so
that a topic read later than another does not lose its records. Window rows have a column
WINDOW_TIME, the event time for a further window.

A window is published as it is if each of its inputs has a record in it: a sum or mean of nothing is
undefined.
"""
