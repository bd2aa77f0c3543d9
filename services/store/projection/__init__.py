"""Events of the bus become rows, each exactly once, and can be built again."""
