"""Detects settings that must not be published, by their names and values."""

import re

_NAME = (
    r"(?:passw|passphrase|secret|token|credential|jaas|fs\.azure\.sas"
    r"|(?:access|account|api|encryption|private|shared)[._-]?key"
    r"|ssl\.key\.pem|ssl\.keystore\.key)"
)
# Classes and locations that provide secrets: `fs.s3a.aws.credentials.provider`.
_PROVIDER = re.compile(r"\bprovider(?:\.(?:path|type|mapping))?$", re.IGNORECASE)
_IN_NAME = re.compile(_NAME, re.IGNORECASE)
# `-Dssl.keyPassword=x` and `{"password": "x"}` within a value, `//user:password@host`, and PEM.
_IN_VALUE = re.compile(
    rf"""{_NAME}[\w.-]*(?:["']?\s*=|["']\s*:)|//[^/@\s]*:[^/@\s]+@|-BEGIN [A-Z ]*PRIVATE KEY-""",
    re.IGNORECASE,
)


def looks_secret(name: str, value: str) -> bool:
    """Whether a setting looks like a secret. Any name that mentions secrets does, except names of
    their providers."""
    is_named = _IN_NAME.search(name) and not _PROVIDER.search(name)
    return bool(is_named or _IN_VALUE.search(value))
