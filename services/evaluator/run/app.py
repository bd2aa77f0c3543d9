"""The Faust application. Faust owns workers, agents, channels, the web server and supervision. The
hot path moves batches of columns, so an agent receives one message per batch, not per record.

    control.runs ──(Faust topic)──► carry_out ─┐
    inputs, outputs ──(ReaderService)──► batches ──(Faust channel)──► evaluate ──► results.*
"""

import asyncio
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
from faust.exceptions import ConsumerNotStarted
from faust.types.auth import CredentialsT
from mode import CrashingSupervisor
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from schemas import catalogue, codec
from schemas.commands import decode
from services.evaluator.run.reader import Frontier, Reader, TimestampError
from services.evaluator.run.session import EvaluatorSession
from services.evaluator.settings import EvaluatorSettings
from services.runtime.kafka_security import security
from services.runtime.process import release_memory

LAG = Gauge("tidegauge_evaluator_lag_seconds", "Seconds by which the evaluation is behind")
CHANNEL_BATCHES = 16
IDLE_S = 0.25


def credentials(properties: Mapping[str, str]) -> CredentialsT | None:
    """Credentials for `faust.App(broker_credentials=…)`; None if the broker requires none.

    Raises ValueError, or OSError if a file cannot be read.
    """
    result = security(properties)
    context = result.ssl_context()
    if result.is_authenticated:
        return faust.SASLCredentials(
            username=result.username,
            password=result.password,
            mechanism=result.mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None


def build_app(
    settings: EvaluatorSettings, session: EvaluatorSession, first_command: int = 0
) -> faust.App:
    """Build the application. Only its agents call `session`. Commands before the offset
    `first_command` are ignored.

    Every process is its own consumer group, because each needs all commands. In a shared group, a
    partition of a killed member would be reassigned only after its session timeout. Nothing is
    committed, so the group leaves nothing behind. After a rebalance Faust reads the commands from
    the first offset, and those already handled are skipped.

    An unexpected error in an agent ends the process. It is then restarted and counts the run again.
    Faust's default would continue with the next batch and lose the records of this one.
    """
    app = faust.App(
        f"tidegauge-evaluator-{uuid.uuid4()}",
        broker=f"kafka://{settings.bootstrap}",
        broker_credentials=credentials(settings.client_properties),
        store="memory://",
        datadir=settings.data / "faust",
        topic_disable_leader=True,
        topic_allow_declare=False,
        agent_supervisor=CrashingSupervisor,
        consumer_auto_offset_reset="earliest",
        web_host=settings.host,
        web_bind=settings.host,
        web_port=settings.web_port,
        autodiscover=False,
    )
    batches = app.channel(maxsize=CHANNEL_BATCHES)
    commands = app.topic(
        catalogue.CONTROL, key_type=bytes, value_type=bytes, value_serializer="raw", acks=False
    )

    @app.agent(commands)
    async def carry_out(stream: Any) -> None:
        next_command = first_command
        async for event in stream.events():
            if event.message.offset < next_command:
                continue
            next_command = event.message.offset + 1
            try:
                command = decode(event.value)
            except codec.DecodeError:
                continue  # the conductor owns this topic and writes the dead letter
            session.command(command)

    @app.agent(batches)
    async def evaluate(stream: Any) -> None:
        async for source, item in stream:
            if source is not session.reader:
                continue  # from a run that has ended
            if isinstance(item, Frontier):
                session.advance(item)
                LAG.set(session.lag_ms / 1000)
            elif isinstance(item, Exception):
                session.fail(str(item))
            else:
                session.add(item)

    @app.service
    class ReaderService(faust.Service):
        """Reads in its own thread during a run. An unexpected error ends the process."""

        @faust.Service.task
        async def _read(self) -> None:
            await read_runs(self, session, batches, settings)

    live = CollectorRegistry()
    live.register(session.live)
    _add_pages(app, live)
    return app


async def read_runs(
    service: Any, session: EvaluatorSession, batches: Any, settings: EvaluatorSettings
) -> None:
    """Send batches from the current run's reader to the channel until the service stops."""
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, thread_name_prefix="reader")
    reader: Reader | None = None
    published_s = 0.0
    while not service.should_stop:
        if reader is not session.reader:
            if reader is not None:
                await loop.run_in_executor(pool, leave, reader)
            reader = session.reader
        if reader is None:
            await service.sleep(IDLE_S)
            continue
        # Larger batches are cheaper: each batch has a fixed cost.
        left_s = published_s + settings.publish_s - loop.time()
        wait_s = max(0.0, min(settings.poll_s, left_s))
        try:
            for batch in await loop.run_in_executor(
                pool, reader.read, settings.batch_records, wait_s
            ):
                await batches.send(value=(reader, batch))
            if loop.time() - published_s >= settings.publish_s:
                published_s = loop.time()
                frontier = await loop.run_in_executor(pool, reader.frontier)
                await batches.send(value=(reader, frontier))
        except TimestampError as error:
            session.stop_reading()
            await batches.send(value=(None, error))


def leave(reader: Reader) -> None:
    """Close a reader, and release the memory of its run."""
    reader.close()
    release_memory()


def _has_commands(app: faust.App) -> bool:
    try:
        return bool(app.consumer.assignment()) and not app.rebalancing
    except ConsumerNotStarted:
        return False


def _add_pages(app: faust.App, live: CollectorRegistry) -> None:
    @app.page("/health/live")
    async def is_live(web: Any, _request: Any) -> Any:
        return web.text("live\n")

    @app.page("/health/ready")
    async def ready(web: Any, _request: Any) -> Any:
        is_ready = _has_commands(app)
        return web.text("ready\n" if is_ready else "not ready\n", status=200 if is_ready else 503)

    @app.page("/metrics")
    async def metrics(web: Any, _request: Any) -> Any:
        page = generate_latest() + generate_latest(live)
        return web.bytes(page, content_type=CONTENT_TYPE_LATEST.split(";")[0])
