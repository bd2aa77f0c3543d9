"""Starts, watches, restarts and stops the pipelines of a run, one process for each."""
