"""Change points over the history of runs: did last night's upgrade slow the join?

`series.py` is the history, `analysis/change_points.py` finds changes, `causes.py` lists other
differences at the same place, `finding.py` describes them. Pure.
"""
