"""Which statements, settings and parts of the database a user reaches."""
