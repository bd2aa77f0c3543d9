"""Stateful kinds with custom state: transformWithState in Python.

Every stage keeps the same state per key, its recent records by event time (see `memory`). A stage
is one pure function from that memory and its changes to the output rows. Duplicates count once, as
in the ledger.
"""
