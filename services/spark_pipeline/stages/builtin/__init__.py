"""The stateful kinds as Spark offers them: joins of two streams, and windows that close when the
watermark has passed their end (append mode).

Each input is a DataFrame with a watermark of its own: the stage's watermark is then the oldest of
them, so that a topic that is read later than another does not lose its records. Rows about windows
have a column WINDOW_TIME, the event time for a further window.

A window is published with what it has, provided that each input that is named has a record there: a
sum and a mean of nothing say nothing.
"""
