"""How Faust's own Kafka clients log in: as the settings say for all others."""

import ssl
from collections.abc import Mapping

import faust
from faust.types.auth import CredentialsT

from services.runtime.kafka_security import security


def credentials(properties: Mapping[str, str]) -> CredentialsT | None:
    """Credentials for `faust.App(broker_credentials=…)`; None where nothing is asked for.

    Raises ValueError, OSError where a file cannot be read.
    """
    found = security(properties)
    context: ssl.SSLContext | None = None
    if found.is_encrypted:
        context = ssl.create_default_context(cafile=found.ca_path or None)
        if found.certificate_path:
            context.load_cert_chain(
                found.certificate_path, found.key_path or None, found.key_password or None
            )
    if found.is_authenticated:
        return faust.SASLCredentials(
            username=found.username,
            password=found.password,
            mechanism=found.mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None
