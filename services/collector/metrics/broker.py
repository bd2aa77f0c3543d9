"""Metrics to scrape from a Kafka broker's JMX exporter."""

from typing import Final
from urllib.parse import urlencode

from services.collector.metrics.prometheus import Target

# Named in deploy/kafka/jmx-exporter.yaml.
METRICS: Final = (
    "kafka_log_log_size",
    "kafka_network_requestmetrics_requests_total",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_requestmetrics_totaltimems_mean",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
)


def broker_target(host: str, port: int) -> Target:
    """The exporter of a broker. Scrape these metrics by name only: the default ones of every
    exporter include a count of deadlocked threads, for which the JVM stops all threads."""
    query = urlencode([("name[]", name) for name in METRICS])
    return Target(url=f"http://{host}:{port}/metrics?{query}", metrics=METRICS)
