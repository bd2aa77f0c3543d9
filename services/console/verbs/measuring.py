"""Verbs that measure: `run`, `study`, `watch`, `evaluate`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click import argument, option

from services.console.arguments import ConsoleSession, names_of, print_json, verb, with_session
from services.console.files import FileToWrite

AUTO = "auto"
FILE = click.Path(path_type=Path)


def _warm_up(text: str) -> int | str:
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"must be seconds or {AUTO}, not {text!r}.") from error


def judging(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the verbs that judge what they measured."""
    for name, metavar, text in (
        ("--benchmark", "FILE.json", "also write its figures for github-action-benchmark"),
        ("--junit", "FILE.xml", "also write its checks as JUnit XML"),
        ("--markdown", "FILE.md", "also write it as Markdown, such as a CI job summary"),
        ("--report", "FILE.json", "also write the report as JSON"),
    ):
        function = option(name, type=FileToWrite(), metavar=metavar, help=text)(function)
    return option(
        "--threshold",
        "thresholds",
        multiple=True,
        metavar='"FIGURE <= N"',
        help='such as "join.p99_ms <= 50"; exit code 3 if it fails; may be repeated',
    )(function)


@verb(
    ("./tidegauge run", "workload latency on spark-realtime"),
    ("./tidegauge run --pipeline spark-realtime,spark-microbatch", "both on the same input"),
    ("./tidegauge run --rate 1000 --duration 60 --stages 1,2", "1000 records/s for a minute"),
    ("./tidegauge run --pipeline flink --set state=rocksdb", "another setting of its engine"),
    ("./tidegauge run --domain gem_packs", "another domain: in-game purchases and ads"),
    ("./tidegauge run --report report.json", "also write the report as JSON"),
    ("./tidegauge run --warm-up 60", "a fixed warm-up of one minute"),
    ('./tidegauge run --threshold "join.p99_ms <= 50"', "exit code 3 if it fails"),
    ("./tidegauge run --repeat 5", "median of five runs, with confidence intervals"),
    (
        "./tidegauge run --pipeline spark-realtime,flink --interleave",
        "alternating blocks; do they differ?",
    ),
)
@argument("workload", default="latency", metavar="[WORKLOAD]", shell_complete=names_of("workload"))
@option(
    "--domain",
    metavar="NAME",
    shell_complete=names_of("domain"),
    help="a name from `domains`, or the path of a folder (default: traffic)",
)
@option(
    "--pipeline",
    metavar="NAME[,NAME]",
    shell_complete=names_of("pipeline"),
    help="pipelines to measure (default: those of the workload, or spark-realtime)",
)
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="another value of a setting of the pipelines (`engines NAME` lists them), or several, a "
    "run for each; may be repeated",
)
@option(
    "--stages",
    metavar="0-4",
    help="stages by number from 0 or by name: 0-4, 2 or parse,join (`domains NAME` lists them)",
)
@option("--rate", type=float, metavar="N", help="input records per second")
@option(
    "--duration",
    type=int,
    metavar="S",
    help="seconds measured; if shorter than the workload's, its other times are shortened, too",
)
@option("--warm-up", type=_warm_up, metavar="S|auto", help="seconds of warm-up, or until steady")
@option(
    "--scale",
    type=float,
    metavar="SHARE",
    help="scale of the workload's bursts or backlog (default: 1)",
)
@option(
    "--input",
    type=FILE,
    metavar="FILE",
    help="replay your own records: CSV, JSON or Parquet, a file or a folder of files",
)
@option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="unit of times in the file that are numbers since 1970 (default: milliseconds)",
)
@option(
    "--format",
    type=click.Choice(["avro", "json"]),
    help="format of the input records (default: the workload's)",
)
@option(
    "--transport",
    type=click.Choice(["kafka", "tcp", "udp", "zeromq"]),
    help="how records are sent; all but kafka go through the gateway (default: the workload's)",
)
@option(
    "--processing-time",
    is_flag=True,
    help="also measure from when a pipeline was handed its inputs, by a proxy before the broker",
)
@option(
    "--workers", metavar="N[,N]", help="search the sustainable rate with each number of workers"
)
@option("--repeat", type=int, metavar="N", help="do N runs and report the median run (default: 1)")
@option(
    "--profile",
    type=click.Choice(["citation"]),
    help="strict rules for published figures: steady, undisturbed, at least five runs",
)
@option(
    "--interleave",
    is_flag=True,
    help="measure two pipelines in alternating blocks and test whether they differ",
)
@option(
    "--floor",
    is_flag=True,
    help="first measure a plain copy for 10 s: the latency of Tidegauge itself",
)
@option(
    "--kill",
    type=click.Choice(["driver", "worker", "broker", "evaluator", "network", "record", "disk"]),
    metavar="PART",
    help="kill the driver, worker, broker or evaluator, cut the pipelines' network to the broker, "
    "let them throw at a record, or fill the disk of their state for 5 s, at the workload's time "
    "or after a third of the measured phase",
)
@option(
    "--signal",
    type=click.Choice(["kill", "terminate", "pause", "cut", "slow"]),
    help="how --kill does it: SIGKILL (default), SIGTERM, or a pause of 5 s; the network is cut "
    "(default), paused or slowed for 5 s",
)
@option(
    "--baseline",
    metavar="FILE.json|RUN_ID",
    help="earlier report or run to compare with; with five runs each, worse is exit code 3",
)
@option(
    "--require-comparison",
    is_flag=True,
    help="exit code 3 also if the comparison with the baseline decides nothing",
)
@judging
@with_session
def run(session: ConsoleSession, **options: Any) -> int:
    """Start the stack if needed, do one run, and print a report.

    Starts the stack if it is not running. Prepares the pipelines until every stage publishes. Sends
    the load: warm-up until all stages are steady, measured phase, cool-down. Waits until every
    expected output has a verdict, and prints the report. Stops what it started. Ctrl-C ends the
    run; its results are kept and marked INVALID.

    WORKLOAD is a name from `./tidegauge workloads` or the path of a TOML file (default: latency). A
    pipeline is a name from `./tidegauge pipelines`, a path, or external:NAME for a program that is
    already running and writes to output.NAME.<stage>.
    """
    from services.console import series

    return series.run(series.RunOptions(**options), session.settings, session.console)


@verb(
    ("./tidegauge study", "list studies, their scales and durations"),
    ("./tidegauge study ospbench --scale small", "at most six hours; resumes after Ctrl-C"),
    ("./tidegauge study ospbench --from ospbench-small.json", "without the runs of another day"),
)
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("study"))
@option("--scale", default="small", metavar="NAME", help="a scale from the list (default: small)")
@option(
    "--folder",
    type=FILE,
    default=Path(),
    metavar="DIR",
    help="folder for the page (default: current folder)",
)
@option(
    "--from",
    "earlier",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="take the valid runs of NAME-SCALE.json, written on another day or for other data",
)
@option("--json", "as_json", is_flag=True, help="print the list as JSON")
@with_session
def study(
    session: ConsoleSession,
    name: str | None,
    *,
    scale: str,
    folder: Path,
    earlier: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Repeat the experiments of a paper, or list the studies.

    Does all runs of a study: a list of experiments with the figures that a paper reports. Writes
    the results as NAME-SCALE.html, NAME-SCALE.md and NAME-SCALE.json. INVALID runs are repeated.
    After Ctrl-C the same command resumes; finished runs are recorded in the data folder. Missing
    engines are installed.

    NAME is a name from `./tidegauge study` or the path of a TOML file (default: list the studies).
    """
    from services.console.lists import studies
    from services.console.studies import studying

    if name:
        settings, console = session.settings, session.console
        return studying.study(name, scale, folder, settings, console, earlier=earlier)
    if as_json:
        print_json(studies())
    else:
        studying.show_studies(session.console)
    return 0


@verb(
    ("./tidegauge watch --infer orders shipped --kafka kafka:9092", "suggest a watch file"),
    ("./tidegauge watch orders.toml", "watch until Ctrl-C"),
    ("./tidegauge watch orders.toml --detach", "in the background"),
    ('./tidegauge watch orders.toml --duration 120 --threshold "p99_ms <= 500"', "gate a CI job"),
    ("./tidegauge watch orders.toml --export", "without a stack; figures for Prometheus"),
    ("./tidegauge watch", "list the watches"),
    ("./tidegauge watch --end orders", "end a watch; its runs are kept"),
)
@argument("file", required=False, type=FILE, metavar="[FILE.toml]")
@option("--detach", is_flag=True, help="watch in the background")
@option(
    "--duration",
    type=int,
    metavar="S",
    help="watch for so many seconds, then print a report; exit codes as of `run`",
)
@option(
    "--export",
    is_flag=True,
    help="watch in this process alone, without the stack, and serve metrics and a page",
)
@option("--port", type=click.IntRange(1, 65_535), metavar="N", help="of --export (default: 9707)")
@option("--listen", default="", metavar="ADDRESS", help="of --export (default: 127.0.0.1)")
@option("--otlp", default="", metavar="URL", help="of --export: also push to a collector by OTLP")
@judging
@option("--json", is_flag=True, help="the list of watches as JSON")
@option("--end", metavar="NAME", help="end a watch that runs in the background")
@option(
    "--infer",
    nargs=2,
    metavar="INPUT OUTPUT",
    help="sample two topics and print a suggested watch file; FILE.toml may give their logins",
)
@option(
    "--through",
    multiple=True,
    metavar="TOPIC",
    help="of --infer: a topic between these two; may be repeated, in order",
)
@option("--kafka", default="", metavar="HOST:PORT", help="bootstrap server of these topics")
@option("--registry", default="", metavar="URL", help="schema registry of these topics")
@with_session
def watch(session: ConsoleSession, **options: Any) -> int:
    """Measure your own pipeline as it runs, or list watches.

    Reads the input and output topics of a pipeline that you run and pairs their records. Reports
    latency, missing and duplicate outputs; every hour is a run. Writes nothing to these topics and
    joins no consumer group. Starts the stack if it is not running. With --detach the watch runs
    until it is ended, with --duration for some seconds, which are one run with a report and an exit
    code. With --export nothing else is started: one process watches, keeps its position in a file,
    and serves its figures at /metrics and as a page. docs/watch-your-pipeline.md is a tutorial.

    FILE.toml names the topics to watch (default: list the watches).
    """
    from services.console import watching

    return watching.watch(watching.WatchOptions(**options), session.settings, session.console)


@verb(("./tidegauge evaluate 20260101-120000-abcd", "an id from `./tidegauge runs`"))
@argument("run_id", metavar="RUN_ID")
@with_session
def evaluate(session: ConsoleSession, run_id: str) -> int:
    """Evaluate a past run again and compare with the live results.

    Reads the inputs and outputs of a past run from Kafka, evaluates them again, and compares every
    count with the live results. Exit code 0 if all are equal.
    """
    import os
    import subprocess
    import sys

    from services.console.remote_stack import open_stack
    from services.console.terminal import teller

    settings = session.settings
    stack, say = open_stack(settings), teller(session.console)
    try:
        stack.up(say)
        return subprocess.run(
            [sys.executable, "-m", "services.evaluator.run.reevaluation", run_id],
            env=os.environ | settings.child_variables,
            check=False,
        ).returncode
    finally:
        stack.close(say)
