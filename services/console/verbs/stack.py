"""Verbs about the stack itself: `up`, `down`, `status`, `doctor`, `rebuild`."""

import json
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from typing import TypedDict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.local.engines import install_engines
from deploy.local.parts import lasting_parts
from services.console import listing
from services.console.doctor import examine, notify, show
from services.console.lists import ask_for_suite
from services.console.remote_stack import open_stack
from services.console.verbs.common import EXIT_FAILED, dashboards, print_json, teller
from services.definitions.engines import load_engine
from services.definitions.workloads import load_suite
from services.runtime.clickhouse import QueryError, StoreUrl, answer_of_store, store_url
from services.runtime.settings import ServiceSettings

POLL_S = 0.5
WATCH_S = 0.5


class TableStatus(TypedDict):
    """A table before and after. equal: whether its digest is unchanged."""

    table: str
    rows_before: int
    rows_after: int
    equal: bool


class RebuildAnswer(TypedDict):
    """Of a rebuild. state: waiting, running, done or another end; sentence: its result."""

    state: str
    sentence: str
    equal: bool
    tables: list[TableStatus]


def _rebuild_tables(url: StoreUrl, force: bool, check_stack: Callable[[], None]) -> RebuildAnswer:
    """Request a rebuild and wait until it is done; returns the store's status.

    `check_stack` is called repeatedly and raises if a part of the stack has died. Raises QueryError
    if the store refuses, without changes, or cannot be reached.
    """
    status = _ask(url, "POST", f"/rebuild?force={int(force)}")
    while status["state"] in ("waiting", "running"):
        time.sleep(POLL_S)
        check_stack()
        status = _ask(url, "GET", "/rebuild")
    if status["state"] != "done":
        raise QueryError(status["sentence"] or "The store did not finish the rebuild; see its log.")
    return status


def show_rebuild(console: Console, status: RebuildAnswer) -> None:
    """Rows of every table before and after, and the result of the comparison."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("table", no_wrap=True)
    for column in ("rows before", "rows after", "digest"):
        table.add_column(column, justify="right")
    for row in status["tables"]:
        same = "equal" if row["equal"] else Text("different", "red")
        table.add_row(row["table"], f"{row['rows_before']:,}", f"{row['rows_after']:,}", same)
    console.print(table)
    console.print(status["sentence"], soft_wrap=True)


def _ask(url: StoreUrl, method: str, path: str) -> RebuildAnswer:
    headers = url.headers("admin")
    request = urllib.request.Request(f"{url}{path}", headers=headers, method=method)
    status: RebuildAnswer = json.loads(answer_of_store(url, request))
    return status


def up(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Start the stack, with a suite if one is named; stay until Ctrl-C, or return at once with
    --detach."""
    suite = load_suite(options.suite) if options.suite else None
    stack, say = open_stack(settings, lasting_parts), teller(console)
    if suite is not None and not settings.store_url:
        wanted = [step for step in suite.steps if step.kind != "engines"]
        used = {pipeline.engine for step in wanted for pipeline in step.pipelines}
        install_engines(map(load_engine, sorted(used)), settings, say)
    try:
        (stack.up_detached if options.detach else stack.up)(say)
        if suite is not None:
            ask_for_suite(settings, suite)
            console.print(f"The suite {suite.name} runs. Progress: ./tidegauge status")
        if options.detach or stack.attached:
            _show_addresses(console, settings, "Stop it: ./tidegauge down")
            return 0
        _show_addresses(console, settings, "Ctrl-C stops it.")
        while True:
            stack.check()
            time.sleep(WATCH_S)
    finally:
        if not options.detach:
            stack.close(say)


def down(_options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Stop the stack and any leftover processes of an earlier one."""
    result = open_stack(settings).down(teller(console))
    console.print("The stack is down." if result else "There was no stack to stop.")
    return 0


def status(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Show what is running."""
    listing.show_status(console, settings, open_stack(settings).status(), as_json=options.json)
    return 0


def doctor(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Check the machine and the stack."""
    stack = open_stack(settings).status()
    findings = examine(settings, stack.running, stack.services)
    if options.notify:
        findings = chain(findings, notify(settings))
    if options.json:
        result = [
            asdict(finding) | ({"advice": ""} if finding.good else {}) for finding in findings
        ]
        print_json(result)
        return 0 if all(each["good"] for each in result) else EXIT_FAILED
    return show(console, findings)


def rebuild(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Drop the projection and replay the bus; 0 only if every table is unchanged."""
    stack, say = open_stack(settings), teller(console)
    try:
        stack.up(say)
        say("rebuilding from the bus")
        status = _rebuild_tables(store_url(settings), options.force, stack.check)
    finally:
        stack.close(say)
    show_rebuild(console, status)
    return 0 if status["equal"] else EXIT_FAILED


def _show_addresses(console: Console, settings: ServiceSettings, how_to_stop: str) -> None:
    console.print(f"The stack is up; SQL at {store_url(settings)}. {how_to_stop}", soft_wrap=True)
    console.print(f"Dashboards: {dashboards(settings)}", soft_wrap=True)
