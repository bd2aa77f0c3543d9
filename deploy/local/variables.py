"""Which variables a part of the stack gets: secrets only where they are needed."""

from collections.abc import Mapping

from schemas.secret_settings import looks_secret

BROKER = "kafka"
SECRET_SETTINGS = {
    "TIDEGAUGE_SPARK_CONF": "runner",
    "TIDEGAUGE_SPARK_KAFKA_PROPERTIES": "runner",
    "TIDEGAUGE_CLICKHOUSE_PASSWORD": "store",
    "TIDEGAUGE_CLICKHOUSE_PASSWORD_FILE": "store",
}
# The credentials of Kafka's clients.
EVERY_SERVICE = "TIDEGAUGE_KAFKA_PROPERTIES"
# The user's own secrets, such as AWS_SECRET_ACCESS_KEY: for storage that an engine writes to.
OTHERS = "runner"


def known_to(part: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part."""
    return {name: value for name, value in environ.items() if may_know(part, name)}


def may_know(part: str, variable: str) -> bool:
    """Whether a part gets a variable."""
    if variable == EVERY_SERVICE:
        return part != BROKER
    if variable in SECRET_SETTINGS:
        return part == SECRET_SETTINGS[variable]
    return part == OTHERS or not looks_secret(variable, "")
