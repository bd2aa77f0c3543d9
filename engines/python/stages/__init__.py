"""Stage kinds in Python, for engines that run Python. Imports nothing from Tidegauge.

records.py     values of Kafka records, Avro or JSON, and rows
kinds.py       stage kinds: rows in, rows out, and the state of each key
event_time.py  when inputs reached event times
closing.py     windows closed by event time
plan.py        the plan of a run: stages in order, topics, kinds
reading.py     offsets, lag, and the time up to which all inputs are read
lines.py       the output lines of a program, and its end
"""
