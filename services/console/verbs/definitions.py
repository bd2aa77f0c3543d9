"""Verbs that need no stack: `workloads`, `pipelines`, `domains`, `engines`, `suites`, `new`,
`bench`, `test`, `completion`."""

from pathlib import Path
from typing import Final

import click
from click import argument, option
from click.shell_completion import get_completion_class

from services.console.arguments import (
    EXIT_THRESHOLD,
    PROGRAM,
    VARIABLE,
    ConsoleSession,
    Verb,
    names_of,
    print_json,
    verb,
    with_session,
)
from services.console.files import FileToWrite

as_json_option = click.option("--json", "as_json", is_flag=True, help="as JSON")


def _benchmarks() -> str:
    from services.console.checks import benchmark_names

    return f"NAME is one of {', '.join(benchmark_names())} (default: all)."


@verb(("./tidegauge workloads latency", "load, phases and validity rules"))
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("workload"))
@as_json_option
@option(
    "--domain",
    metavar="NAME",
    shell_complete=names_of("domain"),
    help="explain the workload on this domain",
)
@with_session
def workloads(session: ConsoleSession, name: str | None, as_json: bool, domain: str | None) -> None:
    """List the workloads, or explain one."""
    from services.console import listing, lists

    if domain and not name:
        raise click.UsageError("--domain needs the NAME of a workload.")
    if as_json:
        print_json(lists.workloads(name, domain))
    else:
        listing.show_workloads(session.console, name, domain)


@verb(("./tidegauge pipelines spark-realtime", "engine and all settings"))
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("pipeline"))
@as_json_option
@with_session
def pipelines(session: ConsoleSession, name: str | None, as_json: bool) -> None:
    """List the pipelines, or explain one."""
    from services.console import listing, lists

    if as_json:
        print_json(lists.pipelines(name))
    else:
        listing.show_pipelines(session.console, name)


@verb(("./tidegauge domains gem_packs", "inputs and stages"))
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("domain"))
@as_json_option
@with_session
def domains(session: ConsoleSession, name: str | None, as_json: bool) -> None:
    """List the domains, or explain one.

    A domain is a folder: records, and the expected output of each stage. `run --domain` takes its
    name or a path.
    """
    from services.console import lists

    if as_json:
        print_json(lists.domains(name))
    else:
        lists.show_domains(session.console, name)


@verb(("./tidegauge engines calibration", "modes, implementations and settings"))
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("engine"))
@as_json_option
@option("--install", is_flag=True, help="install the engine now")
@with_session
def engines(session: ConsoleSession, name: str | None, as_json: bool, install: bool) -> None:
    """List the engines, or explain one.

    Describes the kinds of stages that an engine supports, its limits, and the settings of its
    pipelines. TIDEGAUGE_ENGINES adds your own folders.
    """
    from services.console import lists

    if install:
        _install(session, name, as_json)
    if as_json:
        print_json(lists.engines(name, session.settings))
    else:
        lists.show_engines(session.console, name, session.settings)


def _install(session: ConsoleSession, name: str | None, as_json: bool) -> None:
    """Install an engine. With JSON, standard output is for that alone."""
    import sys

    from deploy.local.engines import install_engines
    from services.console.terminal import Terminal, is_quiet, teller
    from services.definitions.engines import load_engine

    if not name:
        raise click.UsageError("--install needs the name of an engine.")
    console = session.console
    shown = Terminal(is_quiet(console), file=sys.stderr) if as_json else console
    install_engines([load_engine(name)], session.settings, teller(shown))


@verb(("./tidegauge suites default", "the steps in order"))
@argument("name", required=False, metavar="[NAME]", shell_complete=names_of("suite"))
@as_json_option
@with_session
def suites(session: ConsoleSession, name: str | None, as_json: bool) -> None:
    """List the suites, or explain one.

    A suite is a TOML file with workloads, pipelines, rates, a rotation and a CPU budget. `up SUITE`
    runs it.
    """
    from services.console import lists

    if as_json:
        print_json(lists.suites(name))
    else:
        lists.show_suites(session.console, name)


@verb(("./tidegauge new domain orders", "creates orders/"))
@argument("kind", type=click.Choice(["domain"]))
@argument("name", metavar="NAME")
@option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="parent folder (default: current folder)",
)
@with_session
def new(session: ConsoleSession, kind: str, name: str, folder: Path | None) -> None:
    """Create a domain of your own from a working template.

    Creates a working domain to edit: two inputs with schemas, a recording in CSV, three stages and
    a workload. NAME consists of a-z, 0-9 and _.
    """
    from schemas.validation_errors import DefinitionError
    from services.console.new_domain import new_domain

    try:
        created = new_domain(name, folder)
    except OSError as error:
        raise DefinitionError(f"The {kind} cannot be written: {error}.") from error
    session.console.print(f"Wrote {created}. Run it with:", soft_wrap=True)
    session.console.print(f"  ./tidegauge run --domain {created}", soft_wrap=True)


@verb(
    ("./tidegauge bench evaluator --json figures.json", "one benchmark, with figures as JSON"),
    ("./tidegauge bench --baseline figures.json", "all benchmarks, for example nightly"),
    details=_benchmarks,
)
@argument("names", nargs=-1, metavar="[NAME]…", shell_complete=names_of("benchmark"))
@option(
    "--json",
    "path",
    type=FileToWrite(),
    metavar="FILE.json",
    help="also write the figures as JSON",
)
@option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="exit code 3 if a ratio is worse than in this file",
)
@with_session
def bench(
    session: ConsoleSession, names: tuple[str, ...], path: Path | None, baseline: Path | None
) -> int:
    """Benchmark parts of Tidegauge against their peers.

    Measures parts of Tidegauge and their peers alternately, so that machine noise affects both
    alike. With --baseline, a file written by --json, the exit code is 3 if the interval of a ratio
    lies entirely below that of the baseline, or if a full run lacks a ratio of the baseline.
    Without --baseline nothing passes or fails.
    """
    from services.console.checks import run_benchmarks

    fallen = run_benchmarks(names, path, baseline, session.console)
    for sentence in fallen:
        session.console.print(sentence, soft_wrap=True)
    return EXIT_THRESHOLD if fallen else 0


class PassingVerb(Verb):
    """A verb that passes on everything after it, also options."""

    common = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take all as they are, except a single --help."""
        is_help = args in (["-h"], ["--help"])
        return super().parse_args(ctx, args if is_help else ["--", *args])


@verb(
    ("./tidegauge test", "what continuous integration runs"),
    ("./tidegauge test unit", "about a minute, without processes"),
    ("./tidegauge test faults", "processes are killed under load"),
    ("./tidegauge test workloads", "every workload, shortened"),
    ("./tidegauge test engines", "every engine, and the example engine on every domain"),
    ("./tidegauge test documented", "every command in README and docs"),
    ("./tidegauge test deploy", "containers by Docker, manifests by an API server"),
    ("./tidegauge test soak", "two hours of the default suite and three watches"),
    ("./tidegauge test fresh", "installs a fresh clone over the network"),
    cls=PassingVerb,
)
@argument("arguments", nargs=-1, metavar="[ARGUMENTS]…")
def test(arguments: tuple[str, ...]) -> int:
    """Run the checks and tests.

    Without arguments: format, lint, types and import boundaries, then all tests except the kinds
    faults, workloads, engines, clients, documented, deploy, soak and fresh. Arguments are passed to
    pytest; the first may be a kind of tests. Options alone, such as -x, are for all tests.
    """
    from services.console.checks import run_tests

    return run_tests([*arguments])


CHANGES: Final = (
    (f"    (( ! $+commands[{PROGRAM}] )) && return 1\n", ""),
    (f"zsh_complete {PROGRAM})", "zsh_complete $words[1])"),
    (f"(commandline -t) {PROGRAM})", "(commandline -t) (commandline -opc)[1])"),
    (
        "    compdef ",
        "    (( $+functions[compdef] )) || { autoload -U compinit && compinit }\n    compdef ",
    ),
)
"""Changes to click's scripts for zsh and fish. They call the program as it was typed, such as
./tidegauge, and not one of the search path; bash's does. zsh may not have loaded its completion."""


@verb(
    ('eval "$(./tidegauge completion bash)"', "for this shell; add it to ~/.bashrc"),
    ("./tidegauge completion zsh > ~/.tidegauge-completion", "then source it in ~/.zshrc"),
    (
        "./tidegauge completion fish > ~/.config/fish/completions/tidegauge.fish",
        "for every later shell",
    ),
)
@argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    Prints a shell script that completes verbs, options and names.
    """
    of_shell = get_completion_class(shell)
    assert of_shell is not None
    script = of_shell(context.find_root().command, {}, PROGRAM, VARIABLE).source()
    for before, after in CHANGES:
        script = script.replace(before, after)
    click.echo(script, nl=False)
