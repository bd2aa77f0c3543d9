"""Applies the DDL, answers SQL, and projects the results bus until stopped."""

import os
import sys
import threading

from confluent_kafka import KafkaException

from schemas import catalogue
from schemas.events import ServiceStarted, ServiceStopped
from services.runtime.events import open_events
from services.runtime.kafka import KafkaUnavailableError, admin_client, ensure_topics
from services.runtime.logs import configure_logs
from services.runtime.process import (
    leave_out_pandas,
    limit_arenas,
    map_large_blocks,
    stop_on_signals,
)
from services.runtime.serving import PortTakenError
from services.store.api.http_interface import serve_sql
from services.store.engine import EngineError, SqlEngine
from services.store.engines.chdb_engine import ChdbEngine, FolderTakenError, NoRoomError
from services.store.engines.schema import bring_up
from services.store.engines.server_engine import ServerEngine
from services.store.engines.wall import Wall
from services.store.projection.inserting import ProjectionError
from services.store.projection.projector import open_projector
from services.store.projection.rebuild import Rebuilds
from services.store.settings import StoreSettings
from services.store.tables import TABLES
from services.store.users import Users

PARENT_POLL_S = 1.0
REASONS_TO_STOP = (
    EngineError,
    FolderTakenError,
    KafkaException,
    KafkaUnavailableError,
    NoRoomError,
    OSError,
    PortTakenError,
    ProjectionError,
)


def run(settings: StoreSettings, users: Users, wall: Wall) -> None:
    """Run the store behind its wall. On a fatal error it exits with code 1 and one line."""
    limit_arenas()
    map_large_blocks()
    leave_out_pandas()
    try:
        engine = open_engine(settings, users)
        try:
            serve(settings, users, engine, wall)
        finally:
            engine.close()
    except REASONS_TO_STOP as error:
        print(f"tidegauge: store: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def open_engine(settings: StoreSettings, users: Users) -> SqlEngine:
    """The server in the settings, or the embedded engine."""
    return ServerEngine(settings, users.reader) if settings.clickhouse_url else ChdbEngine(settings)


def serve(settings: StoreSettings, users: Users, engine: SqlEngine, wall: Wall) -> None:
    """Apply the DDL, start serving, and follow the bus until stopped."""
    stop, ready = stop_on_signals(), threading.Event()
    log = configure_logs("store", settings.log_level)
    (log.info if wall.stands else log.warning)("wall", stands=wall.stands, why=wall.sentence)
    bring_up(engine, settings)
    rebuilds = None if settings.offline else Rebuilds()
    server = serve_sql(settings, users, engine, ready.is_set, rebuilds=rebuilds, wall=wall)
    if rebuilds is None:
        ready.set()
        parent = os.getppid()
        while not stop.wait(PARENT_POLL_S) and os.getppid() == parent:
            pass  # it serves one command, which may have been killed
        server.shutdown()
        return
    topics = catalogue.fixed_topics(settings.results_days, settings.results_mebibytes)
    projected = (topic for topic in topics if topic.name in TABLES)
    ensure_topics(admin_client(settings, "store"), projected, settings.replication)
    events = open_events(settings, "store")
    projector = open_projector(settings, engine, events, stop.is_set)
    projector.resume()
    ready.set()
    events.publish(ServiceStarted(pid=os.getpid()))
    log.info("started", port=settings.port("store"), data=str(settings.database_dir))
    while not stop.is_set():
        projector.step()
        rebuilds.tick(engine, projector, settings, stop.is_set)
    server.shutdown()
    projector.close()
    events.publish(ServiceStopped())
    log.info("stopped")
