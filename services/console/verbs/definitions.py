"""Verbs that need no stack: `workloads`, `pipelines`, `domains`, `engines`, `suites`, `new`,
`bench`, `completion`."""

import re
import sys
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from deploy.local.engines import install_engines
from schemas.domain import DomainSpec, StageSpec
from schemas.validation_errors import DefinitionError
from services.console import listing, lists
from services.console.arguments import build_parser, script
from services.console.checks import run_benchmarks
from services.console.lists import show_engines, show_suites
from services.console.terminal import Terminal, headed, is_quiet, show_entries
from services.console.verbs.common import EXIT_THRESHOLD, print_json, teller
from services.definitions.domains import Domain, domain_names, load_domain
from services.definitions.engines import load_engine
from services.definitions.pipelines import names
from services.runtime.settings import ServiceSettings

TEMPLATE = Path(__file__).parents[1] / "domain_template"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def workloads(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the workloads, or describe one."""
    if options.domain and not options.name:
        raise DefinitionError("--domain needs the NAME of a workload.")
    if options.json:
        print_json(lists.workloads(options.name, options.domain))
    else:
        listing.show_workloads(console, options.name, options.domain)
    return 0


def pipelines(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the pipelines, or describe one."""
    if options.json:
        print_json(lists.pipelines(options.name))
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
        print_json(lists.engines(options.name, settings))
    else:
        show_engines(console, options.name, settings)
    return 0


def domains(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the domains, or describe one."""
    if options.json:
        print_json(lists.domains(options.name))
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
        print_json(lists.suites(options.name))
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


def show_domains(console: Console, name: str | None) -> None:
    """List all domains with their summaries, or describe one. Raises DefinitionError."""
    if name:
        _explain(console, load_domain(name))
        return
    show_entries(console, ((each, load_domain(each).spec.summary) for each in domain_names()))


def new_domain(name: str, folder: Path | None) -> Path:
    """Write a domain that can be run immediately; returns its folder. Raises DefinitionError,
    OSError."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{name!r} is not a valid domain name: use a-z, 0-9 and _.")
    made = (folder or Path.cwd()).resolve() / name
    if made.exists():
        raise DefinitionError(f"{made} exists already.")
    for source in sorted(TEMPLATE.rglob("*.*")):
        place = made / source.relative_to(TEMPLATE)
        if source.suffix == ".avsc":
            place = place.with_name(f"{name}_{source.name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.read_text().replace("NAME", name))
    load_domain(str(made))
    return made


def _explain(console: Console, domain: Domain) -> None:
    spec = domain.spec
    console.print(headed(spec.name, spec.summary), soft_wrap=True)
    for each in spec.inputs:
        text = f"{each.topic}, {each.record} by {each.key}, event time {each.event_time}"
        console.print(f"  input {each.name}: {text}", soft_wrap=True)
    for number, stage in enumerate(spec.stages):
        console.print(f"  {number} {_sentence(spec, stage)}", soft_wrap=True)
    workloads = names(domain.folder / "workloads")
    if workloads:
        console.print(f"  Workloads: {', '.join(workloads)}", soft_wrap=True)
    console.print(f"  Defined in {domain.folder}", soft_wrap=True)


def _sentence(spec: DomainSpec, stage: StageSpec) -> str:
    """`revenue: aggregate of purchases by gem_pack_id, 8 s sliding by 4 s. SUM(price) …`"""
    inputs = " and ".join(each.name for each in spec.inputs_of(stage.name))
    keys = f" by {', '.join(stage.keys)}" if stage.keys else ""
    window = ""
    if stage.window:
        slides = stage.window.slide_s != stage.window.size_s
        window = f", {stage.window.size_s} s"
        window += f" sliding by {stage.window.slide_s} s" if slides else ""
    return f"{stage.name}: {stage.kind} of {inputs}{keys}{window}. {stage.summary}".rstrip()
