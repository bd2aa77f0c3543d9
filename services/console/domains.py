"""The verbs `domains` and `new domain`."""

import re
from pathlib import Path

from rich.console import Console

from schemas.domain import DomainSpec, StageSpec
from schemas.validation_errors import DefinitionError
from services.console.terminal import headed
from services.definitions.domains import Domain, domain_names, load_domain
from services.definitions.files import names

TEMPLATE = Path(__file__).parent / "domain_template"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def show_domains(console: Console, name: str | None) -> None:
    """List all domains with their summaries, or describe one. Raises DefinitionError."""
    if name:
        _explain(console, load_domain(name))
        return
    for each in domain_names():
        console.print(headed(each, load_domain(each).spec.summary), soft_wrap=True)


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
    for one in spec.inputs:
        text = f"{one.topic}, {one.record} by {one.key}, event time {one.event_time}"
        console.print(f"  input {one.name}: {text}", soft_wrap=True)
    for number, stage in enumerate(spec.stages):
        console.print(f"  {number} {_sentence(spec, stage)}", soft_wrap=True)
    workloads = names(domain.folder / "workloads")
    if workloads:
        console.print(f"  Workloads: {', '.join(workloads)}", soft_wrap=True)
    console.print(f"  Defined in {domain.folder}", soft_wrap=True)


def _sentence(spec: DomainSpec, stage: StageSpec) -> str:
    """`revenue: aggregate of purchases by gem_pack_id, 8 s sliding by 4 s. SUM(price) …`"""
    inputs = " and ".join(one.name for one in spec.inputs_of(stage.name))
    keys = f" by {', '.join(stage.keys)}" if stage.keys else ""
    window = ""
    if stage.window:
        slides = stage.window.slide_s != stage.window.size_s
        window = f", {stage.window.size_s} s"
        window += f" sliding by {stage.window.slide_s} s" if slides else ""
    return f"{stage.name}: {stage.kind} of {inputs}{keys}{window}. {stage.summary}".rstrip()
