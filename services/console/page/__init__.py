"""The report of a run as one self-contained HTML page.

`timelines.py` asks the store for what happens over time, `charts.py` draws it (on `scales.py` and
`svg.py`, which know nothing of runs), `document.py` puts report and charts on a page. All but
`timelines.py` is pure.
"""
