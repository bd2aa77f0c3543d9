"""The read model: every SQL query of this program, each a function that answers with typed rows.

`runs.py` has the events and conclusions of runs, `figures.py` the figures of one run's measured
phase, `seconds.py` its counts per second, `timelines.py` its curves, `history.py` what is known of
many runs, `watches.py` the newest results of a watch.

`url` is the address of the store (`services.runtime.clickhouse.store_url`). Every function raises
QueryError if the store refuses or does not answer.
"""
