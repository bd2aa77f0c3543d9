"""The parts of engines that need no engine."""
