"""Suites: runs without end. `schedule.py` says what comes next and when, `usage.py` how busy the
machine is (both pure); `notes.py` keeps the place in a file; `running.py` puts them together."""
