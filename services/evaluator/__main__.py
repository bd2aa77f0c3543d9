"""The evaluator: matches every output with its inputs and gives a verdict for each, while the run
lasts.

    python -m services.evaluator

Reads the input and output topics of the current run. Publishes `results.latency`,
`results.throughput` and `results.verdicts`, and answers `ready` and `drained` on
`results.lifecycle`. Stops cleanly on SIGTERM.
"""

import os
import sys

import faust
from confluent_kafka import KafkaException

from schemas.events import ServiceStarted, ServiceStopped
from services.evaluator.run.app import build_app
from services.evaluator.run.session import EvaluatorSession, RunTopics
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import open_events
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.logs import configure_logs
from services.runtime.process import warm_up_process
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import load_settings


def main() -> None:
    """Run until stopped. Exits non-zero if a part of the application dies."""
    settings = load_settings(EvaluatorSettings)
    configure_logs("evaluator", settings.log_level)
    warm_up_process()
    (settings.data / "faust").mkdir(parents=True, exist_ok=True)
    try:
        events = open_events(settings, settings.name)
        current = EvaluatorSession(RunTopics(settings), events)
        first_command = current.resume()
    except (KafkaException, KafkaUnavailableError, SecretFileError) as error:
        sys.exit(f"{settings.name}: {error}")
    app = build_app(settings, current, first_command)

    @app.task  # type: ignore[untyped-decorator]
    async def announce() -> None:
        events.publish(ServiceStarted(pid=os.getpid()))

    worker = faust.Worker(app, loglevel="WARN", quiet=True, redirect_stdouts=False)
    worker.spinner = None  # its escape sequences would end up in log files
    try:
        worker.execute_from_commandline()
    finally:
        events.publish(ServiceStopped())


if __name__ == "__main__":
    main()
