"""Converts Kafka client properties of librdkafka to those of Java clients. Pure."""

from collections.abc import Mapping

from sql import CannotError

# The jar of Flink's connector contains Kafka's classes in a shaded package.
PACKAGE = "org.apache.flink.kafka.shaded.org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule",
}


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for Java. Raises CannotError."""
    if "ssl.certificate.location" in properties:
        raise CannotError("this engine does not support client certificates for Kafka")
    found: dict[str, str] = {}
    if "security.protocol" in properties:
        found["security.protocol"] = properties["security.protocol"].upper()
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).upper()
    if mechanism:
        if mechanism not in MODULES:
            raise CannotError(f"this engine does not support the SASL mechanism {mechanism}")
        user, password = (
            _quoted(properties.get(f"sasl.{each}", "")) for each in ("username", "password")
        )
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = (
            f"{MODULES[mechanism]} required username={user} password={password};"
        )
    if "ssl.ca.location" in properties:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = properties["ssl.ca.location"]
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
