"""The report of a run as one self-contained HTML page.

`timelines.py` queries the store for values over time, `charts.py` draws them (using `scales.py` and
`svg.py`, which do not depend on runs), `document.py` combines report and charts into a page. All
but `timelines.py` is pure.
"""
