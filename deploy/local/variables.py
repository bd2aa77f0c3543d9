"""Environment variables of each part: secrets are passed only where they are needed, and the
allocator of Python is selected."""

from collections.abc import Mapping
from functools import cache

from schemas.secret_settings import looks_secret
from services.definitions.engines import load_engines

BROKER = "kafka"
SECRET_SETTINGS = {
    "TIDEGAUGE_CLICKHOUSE_PASSWORD": "store",
    "TIDEGAUGE_CLICKHOUSE_PASSWORD_FILE": "store",
    "TIDEGAUGE_WEBHOOKS": "conductor",
}
# Credentials of Kafka clients.
EVERY_SERVICE = "TIDEGAUGE_KAFKA_PROPERTIES"
# Gets the secrets of engines, and the user's own, such as AWS_SECRET_ACCESS_KEY for storage that
# an engine writes to.
OTHERS = "runner"
# Python's own allocator returns memory in blocks of 1 MB. A small object that outlives a run keeps
# a whole block, so the conductor grew with each long run. malloc returns pages of 4 KB.
ALLOCATORS = {"conductor": {"PYTHONMALLOC": "malloc"}}


def known_to(part: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part."""
    known = {name: value for name, value in environ.items() if may_know(part, name)}
    return known | ALLOCATORS.get(part, {})


def may_know(part: str, variable: str) -> bool:
    """Whether a part gets a variable."""
    if variable == EVERY_SERVICE:
        return part != BROKER
    if variable in SECRET_SETTINGS:
        return part == SECRET_SETTINGS[variable]
    return part == OTHERS or not (variable in _of_engines() or looks_secret(variable, ""))


@cache
def _of_engines() -> frozenset[str]:
    """Variables with secret settings of engines."""
    return frozenset(name for one in load_engines().values() for name in one.spec.secrets)
