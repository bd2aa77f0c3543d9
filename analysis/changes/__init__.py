"""Change points over the history of runs: did last night's upgrade slow the join?

`series.py` reads the history from the store, `analysis/change_points.py` finds changes, `causes.py`
lists other differences at the same place, `finding.py` describes them. `__main__.py` does this once
and publishes new changes.
"""
