"""The verb `grafana`: installs the dashboards in an existing Grafana and verifies their queries."""

import os
import time
from argparse import Namespace
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from schemas.validation_errors import DefinitionError
from services.console.grafana_api import Grafana, GrafanaError
from services.console.grafana_push import Outcome, push, verify, wanted_datasource
from services.runtime.grafana_macros import TimeRange

TOKEN: Final = "GRAFANA_TOKEN"
PASSWORD: Final = "TIDEGAUGE_CLICKHOUSE_PASSWORD"
LOOKS_BACK_MS: Final = 3_600_000


def grafana(options: Namespace, clickhouse: str, console: Console) -> int:
    """Push and verify, or only verify; 0 only if everything is installed and every query works.

    clickhouse: HTTP address of the store, unless overridden by the options.
    """
    token = os.environ.get(TOKEN, "")
    if not token:
        raise DefinitionError(
            f"Set {TOKEN} to a token of a Grafana service account with the role Admin."
        )
    if urlsplit(options.url).scheme not in ("http", "https") or not urlsplit(options.url).hostname:
        raise DefinitionError(f"--url: {options.url} is not a URL such as http://grafana:3000")
    if options.action != "push" and (options.clickhouse or options.user):
        raise DefinitionError("--clickhouse and --user apply to `grafana push` only.")
    there = Grafana(options.url, token)
    now_ms = int(time.time() * 1000)
    try:
        outcomes = []
        if options.action == "push":
            address, password = options.clickhouse or clickhouse, os.environ.get(PASSWORD, "")
            outcomes.append(
                push(there, wanted_datasource(address, options.user or "default", password))
            )
        outcomes.append(verify(there, TimeRange(now_ms - LOOKS_BACK_MS, now_ms)))
    except GrafanaError as error:
        raise DefinitionError(f"{options.url}: {error}") from error
    return _show(console, outcomes)


def _show(console: Console, outcomes: list[Outcome]) -> int:
    for outcome in outcomes:
        for line in outcome.done:
            console.print(line, soft_wrap=True)
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        console.print(Text.assemble(("not done:", "red"), f" {problem}"), soft_wrap=True)
    return 1 if problems else 0
