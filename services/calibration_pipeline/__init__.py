"""A pipeline in plain Python with known delays and faults, to check the evaluator with."""
