"""The report of a run (schemas/report.py): `build.py` builds it from the read model, `several.py`
its parts about more than one run. Its forms are `terminal.py`, `html.py` and `ci.py` (which also
has Markdown); they share the sentences of `words.py` and the cells of `tables.py`. `compare.py`
compares reports.
"""
