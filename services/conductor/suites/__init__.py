"""Suites: runs without end. `schedule.py` decides what comes next and when, `usage.py` measures the
load of the machine (both pure); `suite_state.py` saves the place; `running.py` combines them."""
