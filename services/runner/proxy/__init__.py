"""A proxy of the Kafka protocol between a pipeline and its brokers (decision 0207)."""
