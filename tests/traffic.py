"""The domain that most tests are about."""

from services.runtime.domains import load_domain

TRAFFIC = load_domain("traffic").spec
CODEC = TRAFFIC.codec
