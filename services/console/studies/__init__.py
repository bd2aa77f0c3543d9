"""The verb `study`: plan, finished runs, and the page of results."""
