-- Everything below is idempotent, qualified with its database, and the same for the embedded
-- engine (chDB) and a ClickHouse server. Files run in the order of their numbers.

CREATE DATABASE IF NOT EXISTS tidegauge
COMMENT 'Projection of the results bus; may be dropped and rebuilt from Kafka at any time';
