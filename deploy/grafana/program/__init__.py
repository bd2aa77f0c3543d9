"""The program that writes the dashboards: `python -m deploy.grafana.program`.

One module per dashboard; `panels.py` says how a panel looks, `frame.py` what all dashboards share.
"""
