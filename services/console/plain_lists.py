"""Lists of verbs as plain values for `--json`: all with their main fields, or one in full.

Raises DefinitionError if the name does not exist.
"""

from typing import Any

from schemas.pipeline import Pipeline
from services.console.engines import installation_state
from services.definitions.domains import domain_names, load_domain
from services.definitions.engines import installed, load_engine, load_engines
from services.definitions.pipelines import PIPELINES_DIR, load_pipeline, names
from services.definitions.workloads import (
    STUDIES_DIR,
    SUITES_DIR,
    WORKLOADS_DIR,
    chosen_workload,
    load_study,
    load_suite,
    load_workload,
)
from services.runtime.settings import ServiceSettings

Plain = dict[str, Any] | list[dict[str, Any]]


def workloads(name: str | None, domain: str | None) -> Plain:
    """Workloads of all domains; or one, on its own domain or another."""
    if name:
        return chosen_workload(name, domain)[1].model_dump(mode="json")
    found = [(load_workload(each), "") for each in names(WORKLOADS_DIR)]
    for of_domain in map(load_domain, domain_names()):
        own = of_domain.folder / "workloads"
        found += [(load_workload(each, own), of_domain.spec.name) for each in names(own)]
    return [
        {"name": one.name, "summary": one.summary, "domain": domain or one.domain}
        for one, domain in found
    ]


def pipelines(name: str | None) -> Plain:
    """Pipelines with their engines."""
    if name:
        return load_pipeline(name).model_dump(mode="json")
    return [_pipeline(load_pipeline(each)) for each in names(PIPELINES_DIR)]


def _pipeline(one: Pipeline) -> dict[str, Any]:
    return {"name": one.name, "summary": one.summary, "engine": one.engine}


def domains(name: str | None) -> Plain:
    """Domains with their stages."""
    if name:
        found = load_domain(name)
        return {**found.spec.model_dump(mode="json"), "folder": str(found.folder)}
    specs = [load_domain(each).spec for each in domain_names()]
    return [
        {"name": one.name, "summary": one.summary, "stages": list(one.stage_names)} for one in specs
    ]


def engines(name: str | None, settings: ServiceSettings) -> Plain:
    """Engines and whether they are installed."""
    if name:
        one = load_engine(name)
        state = installation_state(installed(one, settings))
        return {**one.spec.model_dump(mode="json"), "state": state, "folder": str(one.folder)}
    return [
        {
            "name": one.spec.name,
            "summary": one.spec.summary,
            "state": installation_state(installed(one, settings)),
        }
        for one in load_engines().values()
    ]


def suites(name: str | None) -> Plain:
    """Suites with their steps."""
    if name:
        return load_suite(name).model_dump(mode="json")
    found = [load_suite(each) for each in names(SUITES_DIR)]
    return [
        {"name": one.name, "summary": one.summary, "steps": [step.label for step in one.steps]}
        for one in found
    ]


def studies() -> Plain:
    """Studies with their scales."""
    found = [load_study(each) for each in names(STUDIES_DIR)]
    return [
        {"name": one.name, "question": one.question, "scales": list(one.scales)} for one in found
    ]
