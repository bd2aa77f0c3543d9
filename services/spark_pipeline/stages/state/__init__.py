"""The stateful kinds with a state of one's own: transformWithState in Python.

Every stage keeps the same state of a key, its recent records by event time (see `memory`), and is
one pure function from that memory and what is new in it to the rows to publish. What comes twice
counts once, as in the ledger.
"""
