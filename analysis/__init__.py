"""Statistics of results: intervals, comparisons, recovery after disturbances, change points, costs.

Used by the console, the conductor and clients of the store. Imports no service.
"""
