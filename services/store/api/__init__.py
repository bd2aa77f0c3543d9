"""ClickHouse's HTTP interface for clients: server within bounds, requests, answers."""
