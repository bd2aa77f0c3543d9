"""Statistics of results: intervals, comparisons, recovery after disturbances, change points, costs.

Used by the console, the conductor and whoever asks the store. It imports no service.
"""
