"""The contract between the services: records, topics, commands and the codec."""
