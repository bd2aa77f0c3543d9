"""Converts Kafka security settings from librdkafka properties for other clients.

`TIDEGAUGE_KAFKA_PROPERTIES` holds the properties of every librdkafka client:

    {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "…",
     "sasl.password": "…", "ssl.ca.location": "/etc/tidegauge/ca.pem"}

Java clients and aiokafka (Faust) use other names for the same settings.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class Security:
    """How clients authenticate and whom they trust. certificate_path, key_path: PEM of the client,
    if the broker requires it; ca_path: PEM of the authorities, empty for those of the machine."""

    protocol: str = PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca_path: str = ""
    certificate_path: str = ""
    key_path: str = ""
    key_password: str = field(default="", repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is used."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def is_authenticated(self) -> bool:
        """Whether SASL is used."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context of a client; None without TLS. Raises OSError if a file cannot be read."""
        if not self.is_encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_path or None)
        if self.certificate_path:
            context.load_cert_chain(
                self.certificate_path, self.key_path or None, self.key_password or None
            )
        return context


def security(properties: Mapping[str, str]) -> Security:
    """Parse librdkafka properties. Raises ValueError, one sentence, for settings that other clients
    do not support."""
    result = Security(
        protocol=properties.get("security.protocol", PLAINTEXT).upper(),
        mechanism=properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).upper(),
        username=properties.get("sasl.username", ""),
        password=properties.get("sasl.password", ""),
        ca_path=properties.get("ssl.ca.location", ""),
        certificate_path=properties.get("ssl.certificate.location", ""),
        key_path=properties.get("ssl.key.location", ""),
        key_password=properties.get("ssl.key.password", ""),
    )
    if result.protocol not in (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL):
        raise ValueError(f"security.protocol {result.protocol} is unknown")
    if result.is_authenticated and result.mechanism not in _LOGIN_MODULES:
        known = ", ".join(_LOGIN_MODULES)
        raise ValueError(
            f"sasl.mechanism must be one of {known}, not {result.mechanism or 'empty'}"
        )
    return result


def login_properties(user: str, password: str) -> dict[str, str]:
    """librdkafka properties of a client of the local broker. SCRAM never sends the password, so a
    process that takes over the port of a stopped broker does not learn it."""
    return {
        "security.protocol": SASL_PLAINTEXT,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The same for Java clients, without a client certificate."""
    result = security(properties)
    if result.protocol == PLAINTEXT:
        return {}
    java = {"security.protocol": result.protocol}
    if result.is_authenticated:
        module = _LOGIN_MODULES[result.mechanism]
        user, password = _quoted(result.username), _quoted(result.password)
        java["sasl.mechanism"] = result.mechanism
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    if result.is_encrypted and result.ca_path:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": result.ca_path}
    return java


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
