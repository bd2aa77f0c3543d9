"""Parts of engines that can be tested without the engine."""
