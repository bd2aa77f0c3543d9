"""Verbs about the stack itself: `up`, `down`, `status`, `doctor`, `rebuild`."""

import time
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from click import argument, option

from services.console.arguments import (
    EXIT_FAILED,
    ConsoleSession,
    names_of,
    print_json,
    verb,
    with_session,
)

if TYPE_CHECKING:
    from deploy.local.stack import Stack
    from services.console.remote_stack import RemoteStack

LOOK_S = 0.5


@verb(
    ("./tidegauge up default --detach", "a run every few minutes"),
    ("./tidegauge up --detach", "until `./tidegauge down`"),
    ("TIDEGAUGE_BASE_PORT=18000 ./tidegauge --data other up", "a second stack"),
)
@argument("suite", required=False, metavar="[SUITE]", shell_complete=names_of("suite"))
@option("--detach", is_flag=True, help="run in the background")
@with_session
def up(session: ConsoleSession, suite: str | None, detach: bool) -> int:
    """Start the stack and keep it running until Ctrl-C.

    Starts the broker and the services and stops them at Ctrl-C; with --detach it returns and they
    keep running. Each `run` then uses them and starts faster. With SUITE, a name from
    `./tidegauge suites` or the path of a TOML file, they run that suite continuously, from where it
    stopped. `run` has priority: the suite's current run is cancelled and repeated.
    """
    from deploy.local.engines import install_engines
    from deploy.local.parts import lasting_parts
    from services.console.lists import ask_for_suite
    from services.console.remote_stack import open_stack
    from services.console.terminal import teller
    from services.definitions.engines import engine_for
    from services.definitions.workloads import load_suite

    settings, console = session.settings, session.console
    wanted = load_suite(suite) if suite else None
    stack, say = open_stack(settings, lasting_parts), teller(console)
    if wanted is not None and not settings.store_url:
        steps = [step for step in wanted.steps if step.kind != "engines"]
        used = (engine_for(pipeline) for step in steps for pipeline in step.pipelines)
        install_engines(used, settings, say)
    try:
        (stack.up_detached if detach else stack.up)(say)
        if wanted is not None:
            ask_for_suite(settings, wanted)
            console.print(f"The suite {wanted.name} runs. Progress: ./tidegauge status")
        if detach or stack.attached:
            _show_addresses(session, "Stop it: ./tidegauge down")
            return 0
        _show_addresses(session, "Ctrl-C stops it.")
        _stay(stack)
    finally:
        if not detach:
            stack.close(say)
    return 0


def _stay(stack: "Stack | RemoteStack") -> None:
    """Until Ctrl-C. Raises StackError if a part has ended."""
    while True:
        stack.check()
        time.sleep(LOOK_S)


def _show_addresses(session: ConsoleSession, how_to_stop: str) -> None:
    from services.console.remote_stack import dashboards
    from services.runtime.clickhouse import store_url

    url = store_url(session.settings)
    session.console.print(f"The stack is up; SQL at {url}. {how_to_stop}", soft_wrap=True)
    session.console.print(f"Dashboards: {dashboards(session.settings)}", soft_wrap=True)


@verb(("./tidegauge down", "results are kept and can be queried"))
@with_session
def down(session: ConsoleSession) -> None:
    """Stop the stack, including processes left by a killed command.

    Stops the stack of this data folder, and processes left by a stack that was killed.
    """
    from services.console.remote_stack import open_stack
    from services.console.terminal import teller

    is_stopped = open_stack(session.settings).down(teller(session.console))
    session.console.print("The stack is down." if is_stopped else "There was no stack to stop.")


@verb(("./tidegauge status --json", "for scripts"))
@option("--json", "as_json", is_flag=True, help="as JSON")
@with_session
def status(session: ConsoleSession, as_json: bool) -> None:
    """Show what is running, and where.

    Shows the services and whether each is ready, the addresses of Kafka and SQL, the current run,
    and the progress of the suite.
    """
    from services.console.listing import show_status
    from services.console.remote_stack import open_stack

    state = open_stack(session.settings).status()
    show_status(session.console, session.settings, state, as_json=as_json)


@verb(("./tidegauge doctor", "before the first run, or if a run fails"))
@option("--json", "as_json", is_flag=True, help="as JSON")
@option("--notify", is_flag=True, help="also post a test message to every webhook")
@with_session
def doctor(session: ConsoleSession, as_json: bool, notify: bool) -> int:
    """Check this machine and the running stack, and suggest fixes.

    Checks Java, cores, memory, disk, jars and ports, and the services of a running stack. Suggests
    a fix for each problem. Exit code 1 if there is one.
    """
    from services.console import doctor as checks
    from services.console.remote_stack import open_stack

    settings, stack = session.settings, open_stack(session.settings).status()
    findings = checks.examine(settings, stack.running, stack.services)
    if notify:
        findings = chain(findings, checks.notify(settings))
    if not as_json:
        return checks.show(session.console, findings)
    rows = [asdict(finding) | ({"advice": ""} if finding.good else {}) for finding in findings]
    print_json(rows)
    return 0 if all(row["good"] for row in rows) else EXIT_FAILED


@verb(("./tidegauge rebuild", "--force if the bus has expired records"))
@option("--force", is_flag=True, help="rebuild even if the bus no longer has all records")
@with_session
def rebuild(session: ConsoleSession, force: bool) -> int:
    """Rebuild the results in ClickHouse from the bus, and compare.

    Drops the projection in ClickHouse, replays the bus, and compares every table with its earlier
    contents. Exit code 0 if all are equal.
    """
    from services.console.rebuilding import rebuild_tables, show_rebuild
    from services.console.remote_stack import open_stack
    from services.console.terminal import teller
    from services.runtime.clickhouse import store_url

    stack, say = open_stack(session.settings), teller(session.console)
    try:
        stack.up(say)
        say("rebuilding from the bus")
        answer = rebuild_tables(store_url(session.settings), force, stack.check)
    finally:
        stack.close(say)
    show_rebuild(session.console, answer)
    return 0 if answer["equal"] else EXIT_FAILED
