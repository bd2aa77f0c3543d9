"""One run of the evaluator as a process: commands in, topics read, counts published."""
