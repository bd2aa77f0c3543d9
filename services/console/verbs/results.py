"""Verbs that show results: `sql`, `report`, `compare`, `changes`, `runs`, `grafana`."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console

from analysis.changes.words import change_sentence
from schemas.events import ChangePointFound
from schemas.validation_errors import DefinitionError
from services.console import listing
from services.console.files import check_file, write_file
from services.console.remote_stack import open_stack
from services.console.report.build import build_whole_report
from services.console.report.ci import junit, markdown
from services.console.report.html import page
from services.console.report.terminal import show_report
from services.console.verbs.common import answering, print_json
from services.readmodel.history import published_changes, read_series
from services.readmodel.runs import latest_run, newest_runs, request_of
from services.readmodel.timelines import read_timelines
from services.runtime.clickhouse import store_url
from services.runtime.events import open_events
from services.runtime.settings import ServiceSettings

SHOWN_CAUSES = 2


def sql(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Run one query, or show example queries."""
    if options.examples is not None and options.query:
        raise DefinitionError("Give a query or --examples, not both.")
    if options.json and options.format:
        raise DefinitionError("Give --json or --format, not both.")
    if options.examples == 0:
        if options.output or options.format:
            raise DefinitionError("--output and --format need a query or the number of an example.")
        if options.json:
            print_json(listing.plain_examples())
        else:
            listing.show_examples(console)
        return 0
    text = listing.example(options.examples).sql if options.examples else options.query
    if not text:
        raise DefinitionError("Give a query, or see: ./tidegauge sql --examples")
    wanted = "json" if options.json else options.format
    output_format = listing.format_of(wanted, options.output)
    check_file("--output", options.output)
    with answering(settings) as url:
        listing.answer(url, text, output_format, options.output)
    return 0


def report(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Show the report of a run."""
    if options.json and options.markdown:
        raise DefinitionError("Give --json or --markdown, not both.")
    if options.run_id and Path(options.run_id).suffix in (".json", ".md", ".html", ".xml"):
        raise DefinitionError(
            f"{options.run_id[:200]} is not a run id; --json and --markdown print to standard"
            " output."
        )
    check_file("--html", options.html)
    check_file("--junit", options.junit)
    with answering(settings) as url:
        run_id = options.run_id or latest_run(url)
        report = build_whole_report(url, run_id)
        if options.html:
            lines = read_timelines(url, run_id, expired=report.seconds_expired)
            text = page(report, request_of(url, run_id), lines)
            write_file("--html", options.html, text.encode())
    if options.junit:
        write_file("--junit", options.junit, junit(report))
    written = " and ".join(str(each) for each in (options.html, options.junit) if each)
    if options.markdown:
        print(markdown(report), end="")
    elif options.json:
        print_json(report.as_json())
    elif written:
        console.print(f"Written to {written}", soft_wrap=True)
    else:
        show_report(console, report)
    return 0


def compare(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Compare two runs, several runs each, or the pipelines of one run."""
    from services.console.report import compare as comparing  # slow: imports numpy

    before = options.before.split(",")
    after = options.after.split(",") if options.after else None
    with answering(settings) as url:
        if options.json:
            print_json(comparing.as_json(comparing.compared(url, before, after)))
        else:
            comparing.show_comparison(console, url, before, after, whole=options.all)
    return 0


def changes(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Show change points in the history; new ones become events while the stack is running."""
    running = open_stack(settings).status().running
    with answering(settings) as url:
        from analysis.changes.finding import all_changes  # slow: imports numpy

        history = all_changes(read_series(url), published_changes(url))
    if running:
        events = open_events(settings, "conductor")
        for change, is_new in history:
            if is_new:
                events.publish(ChangePointFound(run_id=change.first_run_id, **change.detail()))
    result = [change.detail() | {"new": is_new} for change, is_new in history]
    if options.json:
        print_json(result)
    else:
        show_changes(console, result, options.explain)
    return 0


def runs(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """List the runs."""
    with answering(settings) as url:
        result = newest_runs(url, options.limit)
    if options.json:
        print_json(result[: options.limit])
    else:
        listing.show_runs(console, result, options.limit)
    return 0


def grafana(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Push the dashboards to an existing Grafana."""
    # Imported here only: its client takes a second to import, which would delay every other verb.
    from services.console.grafana import grafana as put_into_grafana

    return put_into_grafana(options, store_url(settings), console)


def show_changes(console: Console, changes: list[dict[str, Any]], explains: bool = False) -> None:
    """One paragraph per change. explains: also print both levels, the confidence, and all that
    changed."""
    if not changes:
        console.print("No change point in the history of any workload.")
    for change in changes:
        console.print(change_sentence(change), soft_wrap=True)
        causes = change["likely_causes"]
        for line in (*levels(change), *causes) if explains else causes[:SHOWN_CAUSES]:
            console.print(f"    {line}", soft_wrap=True)
        if len(causes) > SHOWN_CAUSES and not explains:
            more = len(causes) - SHOWN_CAUSES
            console.print(f"    and {more} more: ./tidegauge changes --explain", soft_wrap=True)


def levels(change: dict[str, Any]) -> list[str]:
    """`before: median 5.1, 4.9 to 5.6 in 12 runs`, the same for after, and the confidence."""
    result = [
        f"{side}: median {at['median']:.4g}, {at['low']:.4g} to {at['high']:.4g}"
        f" in {at['runs']} runs"
        for side, at in (("before", change["before"]), ("since", change["after"]))
    ]
    adjusted = "Latencies are adjusted for the pace of the machine and the time of day."
    odds = f"Of shuffled histories {change['p_value']:.2%} show as great a change."
    return [*result, adjusted, odds]
