"""Projects the results bus into ClickHouse and answers SQL over ClickHouse's HTTP interface."""
