"""Kinds of stages in Python, for engines that run Python. It imports nothing of Tidegauge.

records.py   values of Kafka records, Avro or JSON, and rows
kinds.py     kinds of stages: rows in, rows out, and what is kept of each key
closing.py   windows that are closed by event time
plan.py      the plan of a run: stages in order, topics, kinds
reading.py   offsets, lag, and how far in time all inputs are read
lines.py     the lines that a program says, and its end
"""
