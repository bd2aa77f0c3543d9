"""Generates the dashboards: `python -m deploy.grafana.program`.

One module per dashboard; `panels.py` defines the panel types, `frame.py` the common settings.
"""
