"""How a driver ended, as its exit code tells the agent."""

EXIT_STOPPED = 0
EXIT_REPORTED = 3  # a query failed and the driver has published FAILED itself
