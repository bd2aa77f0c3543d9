"""Infrastructure shared by all services: settings, Kafka clients, events, definitions."""
