"""Verbs that need no stack: `workloads`, `pipelines`, `domains`, `engines`, `suites`, `new`,
`bench`, `completion`."""

import sys
from argparse import Namespace

from rich.console import Console

from deploy.local.engines import install_engines
from schemas.validation_errors import DefinitionError
from services.console import listing, plain_lists
from services.console.arguments import build_parser
from services.console.benchmarks import run_benchmarks
from services.console.completion import script
from services.console.domains import new_domain, show_domains
from services.console.engines import show_engines
from services.console.suites import show_suites
from services.console.terminal import Terminal, is_quiet
from services.console.verbs.common import EXIT_THRESHOLD, print_json, teller
from services.definitions.engines import load_engine
from services.runtime.settings import ServiceSettings


def workloads(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the workloads, or describe one."""
    if options.domain and not options.name:
        raise DefinitionError("--domain needs the NAME of a workload.")
    if options.json:
        print_json(plain_lists.workloads(options.name, options.domain))
    else:
        listing.show_workloads(console, options.name, options.domain)
    return 0


def pipelines(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the pipelines, or describe one."""
    if options.json:
        print_json(plain_lists.pipelines(options.name))
    else:
        listing.show_pipelines(console, options.name)
    return 0


def engines(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """List the engines, or describe or install one."""
    if options.install:
        if not options.name:
            raise DefinitionError("--install needs the name of an engine.")
        # With --json, standard output is for the JSON alone.
        shown = Terminal(is_quiet(console), file=sys.stderr) if options.json else console
        install_engines([load_engine(options.name)], settings, teller(shown))
    if options.json:
        print_json(plain_lists.engines(options.name, settings))
    else:
        show_engines(console, options.name, settings)
    return 0


def domains(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the domains, or describe one."""
    if options.json:
        print_json(plain_lists.domains(options.name))
    else:
        show_domains(console, options.name)
    return 0


def new(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """Write a new domain."""
    try:
        folder = new_domain(options.name, options.folder)
    except OSError as error:
        raise DefinitionError(f"The domain cannot be written: {error}.") from error
    console.print(f"Wrote {folder}. Run it with:", soft_wrap=True)
    console.print(f"  ./tidegauge run --domain {folder}", soft_wrap=True)
    return 0


def suites(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the suites, or describe one."""
    if options.json:
        print_json(plain_lists.suites(options.name))
    else:
        show_suites(console, options.name)
    return 0


def bench(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """Run benchmarks; with a baseline, fail if a ratio has fallen."""
    fallen = run_benchmarks(options.names, options.json, options.baseline, console)
    for sentence in fallen:
        console.print(sentence, soft_wrap=True)
    return EXIT_THRESHOLD if fallen else 0


def completion(options: Namespace, _settings: ServiceSettings, _console: Console) -> int:
    """Print a completion script."""
    print(script(options.shell, build_parser(), listing.completions()), end="")
    return 0
