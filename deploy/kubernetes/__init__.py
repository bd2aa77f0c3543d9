"""What of a cluster follows from settings."""
