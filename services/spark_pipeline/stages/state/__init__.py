"""The stateful stages with a state of one's own: transformWithState in Python.

Every stage keeps the same state of a site, its recent observations by event time and lane (see
`memory`), and is one pure function from that memory and the pairs that are new in it to the rows to
publish. What comes twice counts once, as in the ledger.
"""
