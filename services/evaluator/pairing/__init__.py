"""Pairs outputs with inputs: a ledger for each pipeline and stage, fed in append order."""
