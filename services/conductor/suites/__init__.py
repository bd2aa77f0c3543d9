"""Suites: runs without end. `suite_state.py` decides what comes next and when, and saves the place;
`running.py` offers it when the machine is idle; `analysis.py` finds changes afterwards."""
