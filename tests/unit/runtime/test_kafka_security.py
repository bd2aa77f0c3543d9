"""One set of security settings, for all Kafka clients."""

import pytest

from services.runtime.kafka_security import java_properties, security

pytestmark = pytest.mark.unit

SASL_SSL = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "tidegauge",
    "sasl.password": 'se"cr\\et',
    "ssl.ca.location": "/ca.pem",
}


def test_without_settings_nothing_is_asked_of_any_client():
    assert java_properties({}) == {}
    assert java_properties({"socket.keepalive.enable": "true"}) == {}


def test_a_login_over_tls_is_what_java_calls_it():
    assert java_properties(SASL_SSL) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="tidegauge" password="se\\"cr\\\\et";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }


def test_scram_has_a_login_module_of_its_own():
    scram = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512"}
    assert java_properties(scram)["sasl.jaas.config"].startswith(
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
    )


def test_tls_alone_needs_no_login():
    assert java_properties({"security.protocol": "SSL"}) == {"security.protocol": "SSL"}


def test_passwords_do_not_print():
    assert "cr" not in repr(security(SASL_SSL)).replace("security", "").replace("Security", "")


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS is unknown"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism must be one of PLAIN, .* not empty"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism must be one of PLAIN, .* not GSSAPI",
        ),
    ],
)
def test_what_no_client_can_be_told_is_one_sentence(properties, sentence):
    with pytest.raises(ValueError, match=sentence):
        security(properties)
