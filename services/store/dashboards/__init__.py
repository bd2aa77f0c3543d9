"""Grafana's dashboard files as a page, with the queries of their panels."""
