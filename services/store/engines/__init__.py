"""Where queries run and rows are kept: embedded chDB or a ClickHouse server, brought up the same
way."""
