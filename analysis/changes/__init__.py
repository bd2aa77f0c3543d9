"""Change points over the history of runs: did last night's upgrade slow the join?

`series.py` reads the history from the store, `analysis/change_points.py` finds where it changed,
`causes.py` says what else changed there, `finding.py` puts these into words. `__main__.py` does it
once and publishes what is new.
"""
