"""Structured logs: one JSON line per event on standard error, service bound once. A log has a
maximum size."""

import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import structlog

MAX_LOG_BYTES = 64 * 1024 * 1024


def configure_logs(service: str, level: str = "info") -> structlog.stdlib.BoundLogger:
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
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(service=service)
    return logger


def bound_log(log: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Truncate a log larger than `max_bytes`; its writers append, so they continue."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > max_bytes:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)
