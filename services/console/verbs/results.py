"""Verbs that show results: `sql`, `report`, `compare`, `changes`, `runs`, `grafana`."""

from pathlib import Path

import click
from click import argument, option

from services.console.arguments import (
    ConsoleSession,
    Verb,
    names_of,
    print_json,
    verb,
    with_session,
)
from services.console.files import FileToWrite


class SqlVerb(Verb):
    """A query may begin with a comment, which is no option: `-- Runs of today`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move such a query to the end, after `--`."""
        names = {name for each in self.params for name in each.opts}
        queries = [
            word
            for word in args
            if word.startswith("-")
            and len(word.split()) > 1
            and word.partition("=")[0] not in names
        ]
        if queries:
            args = [*(word for word in args if word not in queries), "--", *queries]
        return super().parse_args(ctx, args)


@verb(
    ('./tidegauge sql "SELECT * FROM latency_summary"', "percentiles of every run"),
    ("./tidegauge sql --examples", "list example queries"),
    ("./tidegauge sql --examples 3", "run the third"),
    ('./tidegauge sql "SELECT * FROM runs" --output runs.csv', "CSV, by the file name"),
    cls=SqlVerb,
)
@argument("query", required=False, metavar='["SELECT …"]')
@option(
    "--format",
    metavar="NAME",
    shell_complete=names_of("format"),
    help="table (default), csv, json or jsonl (both one object per line), md, parquet, tsv, or any"
    " ClickHouse format",
)
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="one JSON object per line; with --examples, a JSON list of them",
)
@option("--output", type=FileToWrite(), metavar="FILE", help="write the result to a file")
@option(
    "--examples",
    type=int,
    is_flag=False,
    flag_value=0,
    metavar="[NUMBER]",
    help="list example queries, or run one",
)
@with_session
def sql(
    session: ConsoleSession,
    *,
    query: str | None,
    format: str | None,
    as_json: bool,
    output: Path | None,
    examples: int | None,
) -> None:
    """Query the results in SQL.

    Runs one read-only query in ClickHouse SQL over the results. If the stack is not running, the
    store is started for the query.
    """
    from services.console import listing
    from services.console.remote_stack import answering

    if examples is not None and query:
        raise click.UsageError("Give a query or --examples, not both.")
    if as_json and format:
        raise click.UsageError("Give --json or --format, not both.")
    if examples == 0:
        if output or format:
            raise click.UsageError(
                "--output and --format need a query or the number of an example."
            )
        if as_json:
            print_json(listing.plain_examples())
        else:
            listing.show_examples(session.console)
        return
    text = listing.example(examples).sql if examples else query
    if not text:
        raise click.UsageError("Give a query, or see: ./tidegauge sql --examples")
    output_format = listing.format_of("json" if as_json else format, output)
    with answering(session.settings) as url:
        listing.answer(url, text, output_format, output)


@verb(
    ("./tidegauge report", "the latest run"),
    ("./tidegauge report 20260101-120000-abcd --json", "for scripts"),
    ("./tidegauge report --html report.html", "a self-contained page with charts"),
)
@argument("run_id", required=False, metavar="[RUN_ID]")
@option("--json", "as_json", is_flag=True, help="as JSON")
@option("--markdown", "as_markdown", is_flag=True, help="as Markdown")
@option(
    "--html",
    type=FileToWrite(),
    metavar="FILE.html",
    help="write one HTML page with charts",
)
@option("--junit", type=FileToWrite(), metavar="FILE.xml", help="write its checks as JUnit XML")
@with_session
def report(
    session: ConsoleSession,
    *,
    run_id: str | None,
    as_json: bool,
    as_markdown: bool,
    html: Path | None,
    junit: Path | None,
) -> None:
    """Print the report of a run.

    Prints the report of a run, by default the latest concluded one, from ClickHouse.
    """
    from services.console.files import write_file
    from services.console.remote_stack import answering
    from services.console.report import ci
    from services.console.report.build import build_whole_report
    from services.console.report.html import page
    from services.console.report.terminal import show_report
    from services.readmodel.runs import latest_run, request_of
    from services.readmodel.timelines import read_timelines

    if as_json and as_markdown:
        raise click.UsageError("Give --json or --markdown, not both.")
    if run_id and Path(run_id).suffix in (".json", ".md", ".html", ".xml"):
        raise click.UsageError(
            f"{run_id[:200]} is not a run id; --json and --markdown print to standard output."
        )
    with answering(session.settings) as url:
        run_id = run_id or latest_run(url)
        shown = build_whole_report(url, run_id)
        if html:
            lines = read_timelines(url, run_id, expired=shown.seconds_expired)
            write_file("--html", html, page(shown, request_of(url, run_id), lines).encode())
    if junit:
        write_file("--junit", junit, ci.junit(shown))
    written = " and ".join(str(path) for path in (html, junit) if path)
    if as_markdown:
        print(ci.markdown(shown), end="")
    elif as_json:
        print_json(shown.as_json())
    elif written:
        session.console.print(f"Written to {written}", soft_wrap=True)
    else:
        show_report(session.console, shown)


@verb(
    ("./tidegauge compare 20260101-120000-abcd 20260102-120000-abcd", "two runs"),
    ("./tidegauge compare 20260101-120000-abcd", "the pipelines of one run"),
)
@argument("before", metavar="RUN[,RUN]")
@argument("after", required=False, metavar="[RUN[,RUN]]")
@option(
    "--all",
    "whole",
    is_flag=True,
    help="also the other percentiles, means and output rates of stages",
)
@option("--json", "as_json", is_flag=True, help="all figures as JSON")
@with_session
def compare(
    session: ConsoleSession, before: str, after: str | None, whole: bool, as_json: bool
) -> None:
    """Compare runs, or the pipelines of one run.

    Shows the difference of the median and 99th percentile latency of each stage, with an interval
    (95 % confidence for all of them together), and which settings differ. Only runs of the same
    workload, rate, domain and machine are compared; the others are listed. A difference is
    significant if five or more runs on each side show it, or, for the pipelines of a single run, if
    it holds second by second, where disturbances cancel. None is significant if a run was invalid,
    disturbed or not steady. Cost per record and the rates that searches found are described with an
    interval of their own, and with --all also means, the other percentiles and output rates.

    RUN is one run, or several of the same kind; without a second one, the same run.
    """
    from services.console.remote_stack import answering
    from services.console.report import compare as comparing

    sides = before.split(","), after.split(",") if after else None
    with answering(session.settings) as url:
        result = comparing.compared(comparing.StoredRuns(url), *sides)
        if as_json:
            print_json(comparing.as_json(result))
        else:
            comparing.show_comparison(session.console, result, whole=whole)


@verb(
    ("./tidegauge changes", "did last night's upgrade slow the join?"),
    ("./tidegauge changes --explain", "what else changed there?"),
)
@option("--explain", is_flag=True, help="also show what else changed at each point")
@option("--json", "as_json", is_flag=True, help="as JSON")
@with_session
def changes(session: ConsoleSession, explain: bool, as_json: bool) -> None:
    """Show change points in the history of all runs.

    Searches the history for permanent changes of the typical latency (the mean of the middle half)
    and the 99th percentile of each workload, pipeline and stage, and of sustainable rates: the
    newest 250 valid runs of each load and its pipelines, without those that were not steady. Shows
    the values before and after, the first run, and what else changed (settings, versions, host).
    Suites search after each run; results are also in the view change_points.
    """
    from analysis.changes.finding import all_changes
    from schemas.events import ChangePointFound
    from services.console.listing import show_changes
    from services.console.remote_stack import answering, open_stack
    from services.readmodel.history import published_changes, read_series
    from services.runtime.events import open_events

    is_running = open_stack(session.settings).status().running
    with answering(session.settings) as url:
        history = all_changes(read_series(url), published_changes(url))
    if is_running:  # new ones become events
        events = open_events(session.settings, "conductor")
        for change, is_new in history:
            if is_new:
                events.publish(ChangePointFound(run_id=change.first_run_id, **change.detail()))
    rows = [change.detail() | {"new": is_new} for change, is_new in history]
    if as_json:
        print_json(rows)
    else:
        show_changes(session.console, rows, explain)


@verb(
    ("./tidegauge runs", "ids for `report` and `evaluate`"),
    ("./tidegauge runs --limit 1000 --json", "many runs, for a program"),
)
@option("--json", "as_json", is_flag=True, help="as JSON")
@option(
    "--limit",
    type=click.IntRange(1, 999_999),
    default=200,
    metavar="N",
    help="newest runs to list (default: 200)",
)
@with_session
def runs(session: ConsoleSession, as_json: bool, limit: int) -> None:
    """List the runs.

    Lists the newest runs and their results, newest first.
    """
    from services.console.listing import show_runs
    from services.console.remote_stack import answering
    from services.readmodel.runs import newest_runs

    with answering(session.settings) as url:
        rows = newest_runs(url, limit)
    if as_json:
        print_json(rows[:limit])
    else:
        show_runs(session.console, rows, limit)


@verb(
    ("./tidegauge grafana push --url http://grafana:3000", "for this machine's stack"),
    ("./tidegauge grafana verify --url http://grafana:3000", "run the query of every panel"),
)
@argument("action", type=click.Choice(["push", "verify"]))
@option("--url", required=True, metavar="URL", help="address of Grafana")
@option("--clickhouse", metavar="URL", help="address at which Grafana reaches ClickHouse")
@option("--user", metavar="NAME", help="ClickHouse user (default: default)")
@with_session
def grafana(
    session: ConsoleSession, action: str, url: str, clickhouse: str | None, user: str | None
) -> int:
    """Install the dashboards in Grafana, or check them.

    Installs the data source, folder and dashboards in Grafana 11.6 or newer through its API, and
    runs the query of every panel; `verify` only runs the queries and changes nothing. Idempotent.
    Failures are listed, and the exit code is 1.

    GRAFANA_TOKEN is the token of a service account with the role Admin,
    TIDEGAUGE_CLICKHOUSE_PASSWORD the ClickHouse password. Without Grafana, the store serves the
    same dashboards at /dashboards/.
    """
    from services.console import grafana as dashboards
    from services.runtime.clickhouse import store_url

    store = store_url(session.settings)
    return dashboards.grafana(session.console, store, action, url, clickhouse=clickhouse, user=user)
