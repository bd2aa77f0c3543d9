"""Records as columns: decoded, coded and kept without an object for each record."""
