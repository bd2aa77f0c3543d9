"""Verbs that need no stack: `workloads`, `pipelines`, `suites`, `bench`, `completion`."""

from argparse import Namespace

from rich.console import Console

from services.console import listing
from services.console.arguments import build_parser
from services.console.benchmarks import run_benchmarks
from services.console.completion import script
from services.console.suites import show_suites
from services.runtime.settings import ServiceSettings


def workloads(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the workloads, or explain one."""
    listing.show_workloads(console, options.name)
    return 0


def pipelines(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the pipelines, or explain one."""
    listing.show_pipelines(console, options.name)
    return 0


def suites(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the suites, or explain one."""
    show_suites(console, options.name)
    return 0


def bench(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """Run benchmarks; figures are for reading, nothing passes or fails by them."""
    run_benchmarks(options.name, options.json, console)
    return 0


def completion(options: Namespace, _settings: ServiceSettings, _console: Console) -> int:
    """Print a completion script."""
    print(script(options.shell, build_parser(), listing.completions()), end="")
    return 0
