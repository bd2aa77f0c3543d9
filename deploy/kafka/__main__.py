"""Set up logins and access rules on an external broker.

    python -m deploy.kafka

The local stack does the same for the local broker. A container or a Job runs it once at each start,
with the two secrets `kafka` and `kafka-broker` in the data folder; no service has the second. It
waits for the broker, prints what it did, and exits with 1 and one sentence on failure. Idempotent.
"""

import sys
import time

from confluent_kafka import KafkaException

from deploy.local.broker import set_up_access
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import KAFKA_USER, ServiceSettings, load_settings

WAIT_S = 120
PAUSE_S = 1


def main() -> int:
    """Set up the broker of the settings; returns the exit code."""
    settings = load_settings(ServiceSettings)
    if not settings.kafka_open_bootstrap:
        print("kafka: TIDEGAUGE_KAFKA_OPEN_BOOTSTRAP names no open listener", file=sys.stderr)
        return 2
    try:
        set_up_once_it_answers(settings)
    except (KafkaException, SecretFileError) as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    print(f"kafka: {KAFKA_USER} may log in at {settings.bootstrap}")
    return 0


def set_up_once_it_answers(settings: ServiceSettings) -> None:
    """Retry until the broker accepts. Raises KafkaException after two minutes, SecretFileError."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return set_up_access(settings)
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
