"""What every process needs and nothing of what any of them does."""
