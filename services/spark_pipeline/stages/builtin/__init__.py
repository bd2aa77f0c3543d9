"""The stateful stages as Spark offers them: a join of two streams, and windows that close when the
watermark has passed their end (append mode).

Each function takes two DataFrames of observations, flows and speeds, as `parse` gives them, each
with a watermark of its own: the stage's watermark is then the older of the two, so that a topic
that is read later than the other does not lose its records.

A window is published with what it has, provided that is at least one flow and one speed: a sum and
a mean of nothing say nothing.
"""
