"""Shared by several verbs: exit codes, progress output, and the address of the store."""

import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from services.console.remote_stack import open_stack, public_address, store_session
from services.console.terminal import is_quiet
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings

EXIT_FAILED = 1
EXIT_THRESHOLD = 3
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_PIPE_CLOSED = 128 + signal.SIGPIPE


def teller(console: Console) -> Callable[[str], None]:
    """Prints progress as dim lines, or nothing if quiet."""
    if is_quiet(console):
        return lambda _text: None
    return lambda text: console.print(text, style="dim", soft_wrap=True)


def answering(settings: ServiceSettings) -> AbstractContextManager[str]:
    """The store's URL; starts a temporary store if none is running."""
    return store_session(settings, lambda: open_stack(settings).status().running)


def dashboards(settings: ServiceSettings) -> str:
    """Address of the dashboards."""
    return f"{public_address(settings)}/dashboards/"


def run_page(settings: ServiceSettings, run_id: str) -> str:
    """Address of the dashboard about a run, with the time from its request until now."""
    asked = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    span = f"from={1000 * int(asked.timestamp())}&to={now_ms() + 5000}"
    return f"{dashboards(settings)}d/tidegauge-run?var-run={run_id}&{span}"


def watch_page(settings: ServiceSettings) -> str:
    """Address of the dashboard about watches."""
    return f"{dashboards(settings)}d/tidegauge-watch"


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output, one item per line for legibility."""
    print(json.dumps(value, indent=2))
