"""The command line: verbs, options and their help."""

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias, get_args

from schemas.content import TimeUnit
from schemas.protocol import CITATION
from schemas.workload import AUTO, KillTarget, Transport
from services.console.checks import benchmark_names
from services.console.help import HELP, NONE
from services.runtime.files import read_toml
from services.runtime.settings import ROOT

WIDTH = 79
LOUDNESS = (
    (("-q", "--quiet"), "print results and errors only, no progress"),
    (("--no-color",), "print without colours, as with NO_COLOR set"),
)
EPILOG = """\
Exit codes: 0 success (run: valid, every output correct), 1 the run or check
did not pass, 2 the command could not be carried out, 3 a threshold failed or a
figure is worse than the baseline, 130 interrupted.
State is kept in --data DIR or TIDEGAUGE_DATA (default .tidegauge). Ports start
at TIDEGAUGE_BASE_PORT (default 17070), so several stacks can run side by side."""
SHELLS = ("bash", "zsh")

_SCRIPT = """\
# Completion of tidegauge for {shell}; made by: tidegauge completion {shell}
{before}_tidegauge() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb= word
    COMPREPLY=()
    local skipped=
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $skipped$word in
        --data) skipped=no: ;;
        {verbs_pattern}) verb=$word; break ;;
        *) skipped= ;;
        esac
    done
    case $verb:$previous in
    :--data) return ;;
{values}
    esac
    case $verb in
{words}
    *) COMPREPLY=($(compgen -W "{top}" -- "$current")) ;;
    esac
}}
complete -o default -F _tidegauge tidegauge ./tidegauge
"""
_ZSH_BEFORE = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def build_parser() -> argparse.ArgumentParser:
    """The parser; every verb sets `verb`."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="tidegauge",
        description="Benchmark stream processing pipelines from outside, through Kafka.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tidegauge {_version()}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder for state")
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


def _version() -> str:
    """The version of the checkout, or of the installed package."""
    project = ROOT / "pyproject.toml"
    return read_toml(project)["project"]["version"] if project.is_file() else version("tidegauge")


def _add_run(verbs: Verbs) -> None:
    run = _verb(verbs, "run", "start the stack if needed, do one run, and print a report")
    run.add_argument(
        "workload", nargs="?", default="latency", metavar="WORKLOAD", help="default: latency"
    )
    run.add_argument(
        "--domain",
        metavar="NAME",
        help="a name from `domains`, or the path of a folder (default: traffic)",
    )
    run.add_argument(
        "--pipeline",
        metavar="NAME[,NAME]",
        help="pipelines to measure (default: those of the workload, or spark-realtime)",
    )
    run.add_argument(
        "--stages",
        metavar="0-4",
        help="stages by number from 0 or by name: 0-4, 2 or parse,join (`domains NAME` lists them)",
    )
    run.add_argument("--rate", type=float, metavar="N", help="input records per second")
    run.add_argument(
        "--duration",
        type=int,
        metavar="S",
        help="seconds measured; if shorter than the workload's, its other times are shortened, too",
    )
    run.add_argument(
        "--warm-up", type=_warm_up, metavar="S|auto", help="seconds of warm-up, or until steady"
    )
    run.add_argument(
        "--scale",
        type=float,
        metavar="SHARE",
        help="scale of the workload's bursts or backlog (default: 1)",
    )
    _add_records(run)
    _add_series(run)
    _add_judging(run)


def _add_records(run: argparse.ArgumentParser) -> None:
    """Options about the records of a run and how they are sent."""
    run.add_argument(
        "--input", type=Path, metavar="FILE", help="replay your own observations, CSV or Parquet"
    )
    run.add_argument(
        "--time-unit",
        choices=get_args(TimeUnit),
        help="unit of times in the file that are numbers since 1970 (default: milliseconds)",
    )
    run.add_argument(
        "--format",
        choices=("avro", "json"),
        help="format of the input records (default: the workload's)",
    )
    run.add_argument(
        "--transport",
        choices=get_args(Transport),
        help="how records are sent; all but kafka go through the gateway (default: the workload's)",
    )


def _add_series(run: argparse.ArgumentParser) -> None:
    """Options that make several runs of one, or compare it."""
    run.add_argument(
        "--workers",
        metavar="N[,N]",
        help="search the sustainable rate with each number of workers",
    )
    run.add_argument(
        "--repeat", type=int, metavar="N", help="do N runs and report the median run (default: 1)"
    )
    run.add_argument(
        "--profile",
        choices=(CITATION,),
        default="",
        help="strict rules for published figures: steady, undisturbed, at least five runs",
    )
    run.add_argument(
        "--interleave",
        action="store_true",
        help="measure two pipelines in alternating blocks and test whether they differ",
    )
    run.add_argument(
        "--floor",
        action="store_true",
        help="first measure a plain copy for 10 s: the latency of Tidegauge itself",
    )
    run.add_argument(
        "--kill",
        choices=get_args(KillTarget),
        help="kill this process at the workload's time, or after a third of the measured phase",
    )
    run.add_argument(
        "--baseline",
        metavar="FILE.json|RUN_ID",
        help="earlier report or run to compare with; with five runs each, worse is exit code 3",
    )
    run.add_argument(
        "--require-comparison",
        action="store_true",
        help="exit code 3 also if the comparison with the baseline decides nothing",
    )


def _add_judging(verb: argparse.ArgumentParser) -> None:
    """Options of the verbs that judge what they measured."""
    verb.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar='"FIGURE <= N"',
        help='such as "join.p99_ms <= 50"; exit code 3 if it fails; may be repeated',
    )
    for option, metavar, what in (
        ("--report", "FILE.json", "also write the report as JSON"),
        ("--markdown", "FILE.md", "also write it as Markdown, such as a CI job summary"),
        ("--junit", "FILE.xml", "also write its checks as JUnit XML"),
        ("--benchmark", "FILE.json", "also write its figures for github-action-benchmark"),
    ):
        verb.add_argument(option, type=Path, metavar=metavar, help=what)


def _add_study(verbs: Verbs) -> None:
    study = _verb(verbs, "study", "repeat the experiments of a paper, or list the studies")
    study.add_argument("name", nargs="?", metavar="NAME", help="default: list the studies")
    study.add_argument(
        "--scale", default="small", metavar="NAME", help="a scale from the list (default: small)"
    )
    study.add_argument(
        "--folder", type=Path, metavar="DIR", help="folder for the page (default: current folder)"
    )
    study.add_argument("--json", action="store_true", help="print the list as JSON")


def _add_watch(verbs: Verbs) -> None:
    watch = _verb(verbs, "watch", "measure your own pipeline as it runs, or list watches")
    watch.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="topics to watch")
    watch.add_argument("--detach", action="store_true", help="watch in the background")
    watch.add_argument(
        "--duration",
        type=int,
        metavar="S",
        help="watch for so many seconds, then print a report; exit codes as of `run`",
    )
    _add_judging(watch)
    watch.add_argument("--json", action="store_true", help="the list of watches as JSON")
    watch.add_argument("--end", metavar="NAME", help="end a watch that runs in the background")
    watch.add_argument(
        "--infer",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="sample two topics and print a suggested watch file; FILE.toml may give their logins",
    )
    watch.add_argument(
        "--kafka", default="", metavar="HOST:PORT", help="bootstrap server of these topics"
    )
    watch.add_argument(
        "--registry", default="", metavar="URL", help="schema registry of these topics"
    )


def _limit(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"must be from 1 to 999999, not {text[:80]!r}")
    return int(text)


def _warm_up(text: str) -> int | str:
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be seconds or {AUTO}, not {text!r}") from error


def _add_stack(verbs: Verbs) -> None:
    up = _verb(verbs, "up", "start the stack and keep it running until Ctrl-C")
    up.add_argument(
        "suite", nargs="?", metavar="SUITE", help="suite to run continuously (default: none)"
    )
    up.add_argument("--detach", action="store_true", help="run in the background")
    _verb(verbs, "down", "stop the stack, including processes left by a killed command")
    status = _verb(verbs, "status", "show what is running, and where")
    status.add_argument("--json", action="store_true", help="as JSON")
    doctor = _verb(verbs, "doctor", "check this machine and the running stack, and suggest fixes")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.add_argument(
        "--notify", action="store_true", help="also post a test message to every webhook"
    )


def _add_results(verbs: Verbs) -> None:
    sql = _verb(verbs, "sql", "query the results in SQL")
    sql.add_argument("query", nargs="?", metavar='"SELECT …"')
    sql.add_argument(
        "--format",
        metavar="NAME",
        help="table (default), csv, json or jsonl (both one object per line), md, parquet, tsv, or"
        " any ClickHouse format",
    )
    sql.add_argument(
        "--json",
        action="store_true",
        help="one JSON object per line; with --examples, a JSON list of them",
    )
    sql.add_argument("--output", type=Path, metavar="FILE", help="write the result to a file")
    sql.add_argument(
        "--examples",
        type=int,
        nargs="?",
        const=0,
        metavar="NUMBER",
        help="list example queries, or run one",
    )
    again = _verb(verbs, "evaluate", "evaluate a past run again and compare with the live results")
    again.add_argument("run_id", metavar="RUN_ID")
    rebuild = _verb(verbs, "rebuild", "rebuild the results in ClickHouse from the bus, and compare")
    rebuild.add_argument(
        "--force", action="store_true", help="rebuild even if the bus no longer has all records"
    )
    report = _verb(verbs, "report", "print the report of a run")
    report.add_argument("run_id", nargs="?", metavar="RUN_ID", help="default: the latest run")
    report.add_argument("--json", action="store_true", help="as JSON")
    report.add_argument("--markdown", action="store_true", help="as Markdown")
    report.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with charts")
    report.add_argument(
        "--junit", type=Path, metavar="FILE.xml", help="write its checks as JUnit XML"
    )
    compare = _verb(verbs, "compare", "compare runs, or the pipelines of one run")
    compare.add_argument("before", metavar="RUN[,RUN]", help="one run, or several of the same kind")
    compare.add_argument("after", nargs="?", metavar="RUN[,RUN]", help="default: the same run")
    compare.add_argument(
        "--all", action="store_true", help="also p95, p99.9, means and output rates of stages"
    )
    compare.add_argument("--json", action="store_true", help="all figures as JSON")
    changes = _verb(verbs, "changes", "show change points in the history of all runs")
    changes.add_argument(
        "--explain", action="store_true", help="also show what else changed at each point"
    )
    changes.add_argument("--json", action="store_true", help="as JSON")
    runs = _verb(verbs, "runs", "list the runs")
    runs.add_argument("--json", action="store_true", help="as JSON")
    runs.add_argument(
        "--limit",
        type=_limit,
        default=200,
        metavar="N",
        help="newest runs to list (default: 200)",
    )
    for noun in ("workloads", "pipelines", "domains", "engines", "suites"):
        each = _verb(verbs, noun, f"list the {noun}, or explain one")
        each.add_argument("name", nargs="?", metavar="NAME")
        each.add_argument("--json", action="store_true", help="as JSON")
        if noun == "engines":
            each.add_argument("--install", action="store_true", help="install the engine now")
        if noun == "workloads":
            each.add_argument(
                "--domain", metavar="NAME", help="explain the workload on this domain"
            )


def _add_grafana(verbs: Verbs) -> None:
    grafana = _verb(verbs, "grafana", "install the dashboards in Grafana, or check them")
    grafana.add_argument("action", choices=("push", "verify"), help="verify changes nothing")
    grafana.add_argument("--url", required=True, metavar="URL", help="address of Grafana")
    grafana.add_argument(
        "--clickhouse", metavar="URL", help="address at which Grafana reaches ClickHouse"
    )
    grafana.add_argument("--user", metavar="NAME", help="ClickHouse user (default: default)")


def _add_new(verbs: Verbs) -> None:
    new = _verb(verbs, "new", "create a domain of your own from a working template")
    new.add_argument("kind", choices=("domain",))
    new.add_argument("name", metavar="NAME", help="name, from a-z, 0-9 and _")
    new.add_argument(
        "--folder", type=Path, metavar="DIR", help="parent folder (default: current folder)"
    )


def _add_checks(verbs: Verbs) -> None:
    bench = _verb(verbs, "bench", "benchmark parts of Tidegauge against their peers")
    names = ", ".join(benchmark_names())
    bench.add_argument("names", nargs="*", metavar="NAME", help=f"{names} (default: all)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    bench.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="exit code 3 if a ratio is worse than in this file",
    )
    test = _verb(verbs, "test", "run the checks and tests")
    test.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="a kind, or for pytest"
    )
    completion = _verb(verbs, "completion", "print a completion script for a shell")
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))


def _verb(verbs: Verbs, name: str, text: str) -> argparse.ArgumentParser:
    more = HELP.get(name, NONE)
    parser = verbs.add_parser(
        name,
        allow_abbrev=False,
        help=text,
        description=_paragraphs(f"{text[0].upper()}{text[1:]}.", more.text),
        epilog=more.epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Also accepted after the verb; SUPPRESS keeps a value given before the verb.
    unset = argparse.SUPPRESS
    parser.add_argument("--data", type=Path, metavar="DIR", default=unset, help="folder for state")
    for option, what in LOUDNESS:
        parser.add_argument(*option, action="store_true", default=unset, help=what)
    return parser


def _paragraphs(*texts: str) -> str:
    result = [part for text in texts for part in text.split("\n\n") if part]
    return "\n\n".join(textwrap.fill(part, WIDTH) for part in result)


def script(shell: str, parser: argparse.ArgumentParser, names: Mapping[str, Sequence[str]]) -> str:
    """The script. names: possible values of arguments by their name in the parser (`pipeline`,
    …)."""
    verbs = verbs_of(parser)
    values, words = [], []
    for verb, verb_parser in verbs.items():
        options: list[str] = []
        positional: list[str] = []
        for action in verb_parser._actions:
            known = list(action.choices or names.get(f"{verb}.{action.dest}", ()))
            options += action.option_strings
            if action.option_strings and action.nargs != 0:
                pattern = " | ".join(f"{verb}:{option}" for option in action.option_strings)
                reply = f'COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$current"))'
                values.append(f"    {pattern}) {reply if known else ':'}; return ;;")
            elif not action.option_strings:
                positional += known
        offered = " ".join([*positional, *options])
        words.append(f'    {verb}) COMPREPLY=($(compgen -W "{offered}" -- "$current")) ;;')
    return _SCRIPT.format(
        shell=shell,
        before=_ZSH_BEFORE if shell == "zsh" else "",
        verbs_pattern=" | ".join(verbs),
        values="\n".join(values),
        words="\n".join(words),
        top=" ".join(
            [
                *verbs,
                *(
                    option_string
                    for each in parser._actions
                    for option_string in each.option_strings
                ),
            ]
        ),
    )


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
