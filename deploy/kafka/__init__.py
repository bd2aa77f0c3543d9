"""What brokers are told, wherever they run."""
