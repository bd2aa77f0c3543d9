"""The command line: verbs, options, and their help."""

import argparse
import textwrap
from pathlib import Path
from typing import TypeAlias, get_args

from schemas.protocol import CITATION
from schemas.workload import AUTO, Transport
from services.console.completion import SHELLS
from services.console.help import HELP, NONE

WIDTH = 92
LOUDNESS = (
    (("-q", "--quiet"), "results and errors only, no progress"),
    (("--no-color",), "no colours; so does NO_COLOR in the environment"),
)
EPILOG = """\
Exit codes: 0 done (run: valid and ledger clean), 1 it ran but is not so, 2 it could not be done,
3 a threshold failed, 130 interrupted.
State lives in --data DIR or TIDEGAUGE_DATA (default .tidegauge); ports begin at
TIDEGAUGE_BASE_PORT (default 17070), so that two stacks can run side by side."""


def build_parser() -> argparse.ArgumentParser:
    """The parser; every verb sets `verb`."""
    parser = argparse.ArgumentParser(
        prog="tidegauge",
        description="Benchmarks stream processing pipelines from outside, through Kafka.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where state lives")
    for option, what in LOUDNESS:
        parser.add_argument(*option, action="store_true", help=what)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_run(verbs)
    _add_study(verbs)
    _add_watch(verbs)
    _add_stack(verbs)
    _add_results(verbs)
    _add_grafana(verbs)
    _add_new(verbs)
    _add_checks(verbs)
    return parser


Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_run(verbs: Verbs) -> None:
    run = _verb(verbs, "run", "start what is not running, do one run, print a report, stop it")
    run.add_argument(
        "workload", nargs="?", default="latency", metavar="WORKLOAD", help="default: latency"
    )
    run.add_argument(
        "--domain",
        metavar="NAME",
        help="what the records are of: a name of `domains`, or the path of a folder (traffic)",
    )
    run.add_argument(
        "--pipeline",
        metavar="NAME[,NAME]",
        help="what is measured; default: what the workload names, else spark-realtime",
    )
    run.add_argument("--stages", metavar="0-4", help="which stages, for example 0-4, 2 or 1,3")
    run.add_argument("--rate", type=float, metavar="N", help="input records per second")
    run.add_argument("--duration", type=int, metavar="S", help="seconds that are measured")
    run.add_argument(
        "--warm-up", type=_warm_up, metavar="S|auto", help="seconds before that, or until steady"
    )
    run.add_argument(
        "--scale",
        type=float,
        metavar="SHARE",
        help="of the bursts or the backlog of a workload (1)",
    )
    run.add_argument(
        "--input", type=Path, metavar="FILE", help="observations of your own, CSV or Parquet"
    )
    run.add_argument(
        "--format", choices=("avro", "json"), help="of the input records (the workload's: avro)"
    )
    run.add_argument(
        "--transport",
        choices=get_args(Transport),
        help="how records get in, all but kafka through the gateway (the workload's: kafka)",
    )
    run.add_argument(
        "--workers",
        metavar="N[,N]",
        help="a search with each number of workers; how the pipeline scales (the workload's)",
    )
    run.add_argument(
        "--repeat", type=int, metavar="N", help="so many runs; report the median one (1)"
    )
    run.add_argument(
        "--profile",
        choices=(CITATION,),
        default="",
        help="for figures to be cited: steady, undisturbed, five runs, or a refusal",
    )
    run.add_argument(
        "--interleave",
        action="store_true",
        help="measure two pipelines in turns, in blocks of one load, and say whether they differ",
    )
    run.add_argument(
        "--floor", action="store_true", help="measure a plain copy first, to compare with"
    )
    run.add_argument(
        "--kill", metavar="PART", help="kill driver, worker, broker or evaluator during the run"
    )
    run.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar='"FIGURE <= N"',
        help='a limit, such as "join.p99_ms <= 50"; exit code 3 when it fails; may be repeated',
    )
    run.add_argument(
        "--baseline",
        metavar="FILE.json|RUN_ID",
        help='a report or a run for thresholds such as "join.p99_ms <= 1.1 * baseline"',
    )
    run.add_argument("--report", type=Path, metavar="FILE.json", help="write the report here too")
    for option, metavar, what in (
        ("--markdown", "FILE.md", "and as Markdown, such as a summary of a job"),
        ("--junit", "FILE.xml", "and its checks as JUnit's XML"),
        ("--benchmark", "FILE.json", "and its figures for github-action-benchmark"),
    ):
        run.add_argument(option, type=Path, metavar=metavar, help=what)


def _add_study(verbs: Verbs) -> None:
    study = _verb(verbs, "study", "answer a paper's questions on this machine, or list the studies")
    study.add_argument("name", nargs="?", metavar="NAME", help="default: list the studies")
    study.add_argument(
        "--scale", default="small", metavar="NAME", help="how thorough, as the list says (small)"
    )
    study.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the page is written (default: here)"
    )
    study.add_argument("--json", action="store_true", help="the list as JSON")


def _add_watch(verbs: Verbs) -> None:
    watch = _verb(verbs, "watch", "measure a pipeline of your own, without a load; or list watches")
    watch.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="what is watched")
    watch.add_argument("--detach", action="store_true", help="leave it on and return")
    watch.add_argument("--end", metavar="NAME", help="end a watch that is left on")
    watch.add_argument(
        "--infer",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="look at two topics, and print a file with the best guess",
    )
    watch.add_argument("--kafka", default="", metavar="HOST:PORT", help="where these topics are")
    watch.add_argument("--registry", default="", metavar="URL", help="where their schemas are")


def _warm_up(text: str) -> int | str:
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be seconds or {AUTO}, not {text!r}") from error


def _add_stack(verbs: Verbs) -> None:
    up = _verb(verbs, "up", "start the stack and leave it on until Ctrl-C")
    up.add_argument(
        "suite", nargs="?", metavar="SUITE", help="run this suite for ever; default: run nothing"
    )
    up.add_argument("--detach", action="store_true", help="leave it running and return")
    _verb(verbs, "down", "stop the stack and whatever a killed console left behind")
    status = _verb(verbs, "status", "what is running, and where")
    status.add_argument("--json", action="store_true", help="as JSON")
    doctor = _verb(verbs, "doctor", "check this machine and the running stack, say what to do")
    doctor.add_argument("--json", action="store_true", help="as JSON")


def _add_results(verbs: Verbs) -> None:
    sql = _verb(verbs, "sql", "ask the results in SQL")
    sql.add_argument("query", nargs="?", metavar='"SELECT …"')
    sql.add_argument(
        "--format",
        metavar="NAME",
        help="table (default), csv, json, md, parquet, tsv, or a format of ClickHouse's",
    )
    sql.add_argument("--json", action="store_true", help="--format json; the examples as a list")
    sql.add_argument("--output", type=Path, metavar="FILE", help="write the answer to a file")
    sql.add_argument(
        "--examples",
        type=int,
        nargs="?",
        const=0,
        metavar="NUMBER",
        help="show questions people ask with their queries, or ask one of them",
    )
    again = _verb(verbs, "evaluate", "evaluate a past run again, compare with the live result")
    again.add_argument("run_id", metavar="RUN_ID")
    rebuild = _verb(verbs, "rebuild", "make the results in ClickHouse again from the bus, compare")
    rebuild.add_argument("--force", action="store_true", help="even if the bus lost old records")
    report = _verb(verbs, "report", "the report of a run")
    report.add_argument("run_id", nargs="?", metavar="RUN_ID", help="default: the latest run")
    report.add_argument("--json", action="store_true", help="as JSON")
    report.add_argument("--markdown", action="store_true", help="as Markdown")
    report.add_argument(
        "--html", type=Path, metavar="FILE", help="as one page with charts, to a file"
    )
    compare = _verb(verbs, "compare", "whether two runs, or the pipelines of one, differ")
    compare.add_argument("before", metavar="RUN[,RUN]", help="one run or several of the same")
    compare.add_argument("after", nargs="?", metavar="RUN[,RUN]", help="default: the same run")
    changes = _verb(verbs, "changes", "where the history of the runs shows a change")
    changes.add_argument("--explain", action="store_true", help="with all that else changed there")
    changes.add_argument("--json", action="store_true", help="as JSON")
    runs = _verb(verbs, "runs", "list the runs")
    runs.add_argument("--json", action="store_true", help="as JSON")
    for noun in ("workloads", "pipelines", "domains", "engines", "suites"):
        one = _verb(verbs, noun, f"list the {noun}, or explain one")
        one.add_argument("name", nargs="?", metavar="NAME")
        one.add_argument("--json", action="store_true", help="as JSON")
        if noun == "engines":
            one.add_argument("--install", action="store_true", help="install it now")
        if noun == "workloads":
            one.add_argument("--domain", metavar="NAME", help="explain it on this domain")


def _add_grafana(verbs: Verbs) -> None:
    grafana = _verb(verbs, "grafana", "put the dashboards into a Grafana, or check them there")
    grafana.add_argument("action", choices=("push", "verify"), help="verify changes nothing")
    grafana.add_argument("--url", required=True, metavar="URL", help="address of the Grafana")
    grafana.add_argument(
        "--clickhouse", metavar="URL", help="address at which Grafana reaches ClickHouse"
    )
    grafana.add_argument("--user", default="default", metavar="NAME", help="user of ClickHouse")


def _add_new(verbs: Verbs) -> None:
    new = _verb(verbs, "new", "write the folder of a domain of your own, which runs at once")
    new.add_argument("kind", choices=("domain",))
    new.add_argument("name", metavar="NAME", help="a word of a-z, 0-9 and _")
    new.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the folder is made (default: here)"
    )


def _add_checks(verbs: Verbs) -> None:
    bench = _verb(verbs, "bench", "measure a part of Tidegauge against a peer, in one run")
    bench.add_argument("name", nargs="?", metavar="NAME", help="default: all of them")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    bench.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="end with 3 where a ratio fell since this file",
    )
    _verb(verbs, "test", "run the checks and the tests; further arguments go to pytest")
    completion = _verb(verbs, "completion", "print a completion script for a shell")
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))


def _verb(verbs: Verbs, name: str, text: str) -> argparse.ArgumentParser:
    more = HELP.get(name, NONE)
    parser = verbs.add_parser(
        name,
        help=text,
        description=_paragraphs(f"{text[0].upper()}{text[1:]}.", more.text),
        epilog=more.epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Also after the verb; SUPPRESS, so that a value before the verb is not overwritten.
    unset = argparse.SUPPRESS
    parser.add_argument("--data", type=Path, metavar="DIR", default=unset, help="where state lives")
    for option, what in LOUDNESS:
        parser.add_argument(*option, action="store_true", default=unset, help=what)
    return parser


def _paragraphs(*texts: str) -> str:
    found = [part for text in texts for part in text.split("\n\n") if part]
    return "\n\n".join(textwrap.fill(part, WIDTH) for part in found)
