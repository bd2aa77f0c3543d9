"""Structured logs: one JSON line per event on standard error, service bound once. A log has a
maximum size."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Import what can do without a module as if it were not there."""
    if module in sys.modules:
        yield
        return
    missing: dict[str, Any] = {module: None}
    sys.modules.update(missing)
    try:
        yield
    finally:
        del sys.modules[module]


with _without("rich"):  # for coloured logs, which no service writes; takes 0.1 s and 4 MB
    import structlog

Log = structlog.stdlib.BoundLogger
get_log = structlog.get_logger
bind_log = structlog.contextvars.bind_contextvars
MAX_LOG_BYTES = 64 * 1024 * 1024


def configure_logs(service: str, level: str = "info") -> Log:
    """Log to standard error as JSON lines; returns the bound logger."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: Log = get_log().bind(service=service)
    return logger


def bound_log(log: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Truncate a log larger than `max_bytes`; its writers append, so they continue."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > max_bytes:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)
