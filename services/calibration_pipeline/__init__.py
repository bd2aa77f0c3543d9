"""A pipeline in plain Python with known delays and faults, to verify the evaluator."""
