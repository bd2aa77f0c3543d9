"""Limits the programs and files that a command can make a service use to those of this machine.

A pipeline names programs, classes and JVM options; a workload may name a file with its content or
with a policy of its search; a domain contains code. Commands that carry them travel on Kafka, where
writers need not be the owner of this account. So a service looks up a definition before using it:
in `pipelines/`, `workloads/` or `domains/` of this installation, or among the definitions that the
command line of this data folder has read from the owner's files:

    <data>/definitions/<SHA-256 of the definition>.json

For a domain, that file names the folder and the SHA-256 of its contents, so changed code is
detected.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from schemas.content import Content
from schemas.domain import DomainSpec
from schemas.model import Model
from schemas.pipeline import Pipeline
from schemas.search import PolicyFile
from schemas.suite import Suite
from schemas.validation_errors import DefinitionError
from schemas.workload import Workload
from services.definitions.domains import DOMAINS_DIR, Domain, checked, folder_digest, load_domain
from services.definitions.pipelines import (
    EXTERNAL,
    PIPELINES_DIR,
    for_purpose,
    in_workload,
    load_pipeline,
    names,
)
from services.definitions.workloads import WORKLOADS_DIR, load_workload

KEPT_DEFINITIONS: Final = 1_000


def keep_definitions(
    data: Path,
    workloads: Iterable[Workload],
    pipelines: Iterable[Pipeline],
    domains: Iterable[Domain] = (),
) -> None:
    """Store definitions read from files of this machine, pipelines also as they are in each of the
    workloads; old ones are evicted. Raises OSError and DefinitionError."""
    workloads, pipelines = list(workloads), list(pipelines)
    pipelines += [in_workload(each, workload) for each in pipelines for workload in workloads]
    folder = _folder(data)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = [each.content for each in workloads if each.content.path]
    policies = [file for each in workloads if (file := _policy_file(each)) is not None]
    kept = (*named, *policies, *pipelines)
    texts = {_place(data, each): each.model_dump_json() for each in kept}
    for each in domains:
        if each.folder.parent != DOMAINS_DIR.resolve():
            folder_now = {"folder": str(each.folder), "sha256": folder_digest(each.folder)}
            texts[_domain_place(data, each.spec)] = json.dumps(folder_now)
    for path, text in texts.items():
        path.write_text(text)
        path.touch()
    by_age = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[:-KEPT_DEFINITIONS]:
        path.unlink(missing_ok=True)


def keep_suite(data: Path, suite: Suite) -> None:
    """Store the definitions of a suite's steps. Raises OSError and DefinitionError."""
    workloads = [step.workload for step in suite.steps]
    domains = [load_domain(name) for name in {each.domain for each in workloads}]
    pipelines = [each for step in suite.steps for each in step.pipelines]
    keep_definitions(data, workloads, pipelines, domains)


def pipeline_objection(
    pipeline: Pipeline, data: Path, directory: Path = PIPELINES_DIR
) -> str | None:
    """Why a pipeline in a command must not be started, in one sentence, or None."""
    if _place(data, pipeline).is_file():
        return None
    # An external program that is already running needs only its name.
    name = f"{EXTERNAL}{pipeline.name}" if pipeline.engine == "external" else pipeline.name
    known = None
    with suppress(DefinitionError):
        known = load_pipeline(name, directory)
        if pipeline in [known, *(for_purpose(known, each) for each in (None, *known.purposes))]:
            return None
    what = "differs" if known else "does not exist"
    return f"pipelines/{pipeline.name}.toml on the agent's machine {what}"


def content_objection(content: Content, data: Path, directory: Path = WORKLOADS_DIR) -> str | None:
    """Why the file named in a command must not be read, in one sentence, or None."""
    if not content.path or _place(data, content).is_file():
        return None
    for name in names(directory):
        with suppress(DefinitionError):
            workload = load_workload(name, directory)
            if content in (
                workload.content,
                checked(workload, load_domain(workload.domain)).content,
            ):
                return None
    return f"no workload on the generator's machine reads {content.path} with these options"


def policy_objection(file: PolicyFile, data: Path, directory: Path = WORKLOADS_DIR) -> str | None:
    """Why the policy named in a command must not be used, in one sentence, or None."""
    if _place(data, file).is_file():
        return None
    for name in names(directory):
        with suppress(DefinitionError):
            if file == _policy_file(load_workload(name, directory)):
                return None
    return f"no workload on the conductor's machine names {file.path}"


def _policy_file(workload: Workload) -> PolicyFile | None:
    return workload.search.policy_file if workload.search else None


def trusted_domain(spec: DomainSpec, data: Path, directory: Path = DOMAINS_DIR) -> Domain:
    """The folder on this machine that defines the domain of a command, ignoring what a run may
    override. Raises DefinitionError if there is none."""
    domain = None
    with suppress(DefinitionError):
        domain = load_domain(spec.name, directory)
    if domain is not None and domain.spec.fixed() == spec.fixed():
        return domain
    try:
        kept = json.loads(_domain_place(data, spec).read_text())
        domain = load_domain(kept["folder"])
    except (OSError, ValueError, KeyError) as error:
        what = "differs" if domain else "does not exist"
        raise DefinitionError(f"domains/{spec.name} on this machine {what}.") from error
    if folder_digest(domain.folder) != kept["sha256"]:
        raise DefinitionError(
            f"{domain.folder} has changed since the command line read it for this run."
        )
    return domain


def _domain_place(data: Path, spec: DomainSpec) -> Path:
    text = f"DomainSpec:{json.dumps(spec.fixed(), sort_keys=True)}"
    return _folder(data) / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _folder(data: Path) -> Path:
    return data / "definitions"


def _place(data: Path, definition: Model) -> Path:
    text = f"{type(definition).__name__}:{definition.model_dump_json()}"
    return _folder(data) / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
