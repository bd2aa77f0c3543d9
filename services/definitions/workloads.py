"""Workloads, suites and studies from TOML: `workloads/NAME.toml` and so on.

Load and pipeline are independent. A suite is a list of pairs of them. So is a study, which also
ends and has a page.
"""

import ast
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.content import Content
from schemas.load import Shape
from schemas.search import PolicyFile
from schemas.study import Study
from schemas.suite import Step, Suite, SuiteFile, SuiteItem
from schemas.threshold import EVERY_STAGE, INPUT, PIPELINE, parse_threshold
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.workload import LEAST_COOL_DOWN_S, Workload
from services.definitions.domains import (
    DOMAINS_DIR,
    Domain,
    checked,
    content_of,
    domain_names,
    folder_of,
    load_domain,
)
from services.definitions.pipelines import (
    DEFAULT_PIPELINE,
    load_file,
    load_pipelines,
    names,
    path_of,
    stages_published,
)
from services.runtime.settings import ROOT

WORKLOADS_DIR = ROOT / "workloads"
SUITES_DIR = ROOT / "suites"
STUDIES_DIR = ROOT / "studies"


def load_workload(name: str, directory: Path = WORKLOADS_DIR) -> Workload:
    """One workload by name, or by the path of a TOML file. Raises DefinitionError."""
    folder = path_of(name, directory).parent
    return load_file("workload", lambda fields: _workload(fields, folder), name, directory)


def _workload(fields: dict[str, Any], folder: Path) -> Workload:
    """A workload from a file in a folder, with absolute paths of the files that it names. Raises
    ValueError if one does not exist; an absolute path of content may be of the generator's
    machine."""
    result = _with_policy(Workload.model_validate(fields), folder)
    content = result.content
    if not content.path or Path(content.path).is_absolute():
        return result
    path = (folder / content.path).resolve()
    if not path.exists():
        raise ValueError(f"content.path: {path} is not a file or folder")
    content = content.model_copy(update={"path": str(path)})
    return result.model_copy(update={"content": content})


def _with_policy(workload: Workload, folder: Path) -> Workload:
    """The workload with the absolute path and the digest of its search's policy. Raises ValueError
    if the file has no function for it."""
    search = workload.search
    if search is None or search.policy_file is None:
        return workload
    path = (folder / search.policy_file.path).resolve()
    try:
        code = path.read_bytes()
        tree = ast.parse(code, path.name)
    except OSError as error:
        raise ValueError(f"search.policy_file: {path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"search.policy_file: {path} is not Python: {error}") from error
    if not any(isinstance(each, ast.FunctionDef) and each.name == "judge" for each in tree.body):
        raise ValueError(f"search.policy_file: {path} has no function judge(step)")
    file = PolicyFile(path=str(path), sha256=hashlib.sha256(code).hexdigest())
    search = search.model_copy(update={"policy_file": file})
    return workload.model_copy(update={"search": search})


def domain_with(workload: str) -> str | None:
    """The installed domain that has a workload of this name; None if none has, or if it is one of
    all domains. Raises DefinitionError if several have."""
    if workload in names(WORKLOADS_DIR):
        return None
    result = [
        domain_name
        for domain_name in domain_names()
        if workload in names(DOMAINS_DIR / domain_name / "workloads")
    ]
    if len(result) > 1:
        raise DefinitionError(
            f"The domains {' and '.join(result)} have a workload {workload!r}:"
            " choose with --domain."
        )
    return result[0] if result else None


def chosen_workload(name: str, domain: str | None) -> tuple[Domain, Workload]:
    """The workload by name or path, and its domain. domain: name or path of another domain to use.
    Raises DefinitionError."""
    domain = domain or domain_with(name)
    if domain is None:
        workload = load_workload(name)
        return load_domain(workload.domain), workload
    result = load_domain(domain)
    return result, load_workload_of(result, name)


def load_workload_of(domain: Domain, name: str) -> Workload:
    """A workload on a domain: from the domain's `workloads/`, else the load, phases and rules of an
    installed workload, on all stages, with a cool-down in which its windows close. A file that
    names this domain, or none and has no content of another one, is used as it is. Raises
    DefinitionError."""
    own = domain.folder / "workloads"
    if not name.endswith(".toml") and (own / f"{name}.toml").is_file():
        workload = load_workload(name, own)
    else:
        workload = load_workload(name)
        if not _is_for(workload, name, domain):
            second_ms, phases = workload.content.second_ms, workload.phases
            # Windows with measured records close under load.
            closing_s = LEAST_COOL_DOWN_S + domain.spec.closing_s(
                domain.spec.stage_names, second_ms
            )
            lasting = {"cool_down_s": max(phases.cool_down_s, closing_s)}
            changed = {
                "content": Content(format=workload.content.format, second_ms=second_ms),
                "phases": phases.model_copy(update=lasting),
                "stages": (),
                "pipelines": (),
                "windows": {},
            }
            workload = workload.model_copy(update=changed)
    return workload.model_copy(update={"domain": domain.spec.name})


def _is_for(workload: Workload, name: str, domain: Domain) -> bool:
    """Whether the settings of a workload, given by name or path, are meant for a domain."""
    is_file = name.endswith(".toml") and Path(name).resolve().parent != WORKLOADS_DIR.resolve()
    if is_file and "domain" not in workload.model_fields_set:
        try:
            content_of(domain, workload.content)
        except DefinitionError:  # such as a copy of an installed workload
            return False
        return True
    folder = folder_of(workload.domain, DOMAINS_DIR).resolve()
    return workload.domain == domain.spec.name or folder == domain.folder


def changed(
    workload: Workload,
    rate_per_second: float | None = None,
    measure_s: int | None = None,
    warm_up_s: int | str | None = None,
    scale: float | None = None,
) -> Workload:
    """A workload with another rate, scale or phase lengths where given. Raises ValidationError, and
    DefinitionError if there is nothing to scale.

    scale: factor for the records of each burst and for the time in which a backlog builds up.
    A shorter measure phase shortens what it contains in proportion: times of kills, start of
    pipelines, earlier parts of the load, and the steps of a search.
    """
    fields = workload.model_dump()
    if scale is not None:
        _scale(fields, workload.load, scale)
    if rate_per_second is not None:
        fields["load"]["rate_per_second"] = rate_per_second
        fields["sustainable_share"] = None
    if measure_s is not None:
        if 0 < measure_s < fields["phases"]["measure_s"]:
            _shorten(fields, measure_s / fields["phases"]["measure_s"])
        fields["phases"]["measure_s"] = measure_s
    if warm_up_s is not None:
        fields["phases"] |= {"warm_up_s": warm_up_s, "until_steady": False}
    return Workload.model_validate(fields)


def _scale(fields: dict[str, Any], load: Shape, share: float) -> None:
    if not 0 < share <= 1:
        raise DefinitionError("The scale (--scale) must be above 0 and at most 1.")
    start_s = fields["pipelines_start_s"]
    if not load.bursts and not start_s:
        raise DefinitionError(
            f"The workload {fields['name']} has no burst and no backlog to scale."
        )
    fields["load"] = load.with_bursts(share).model_dump()
    if start_s:
        _scale_backlog(fields, share)
        fields["phases"]["measure_s"] -= start_s - fields["pipelines_start_s"]


def _scale_backlog(fields: dict[str, Any], share: float) -> None:
    """Shorten the time before the pipelines start and the load sent in it."""
    start_s = fields["pipelines_start_s"]
    fields["pipelines_start_s"] = max(1, round(start_s * share))
    for part in fields["load"].get("parts", ()):
        part["for_s"] *= fields["pipelines_start_s"] / start_s


def _shorten(fields: dict[str, Any], share: float) -> None:
    for kill in fields["kills"]:
        kill["at_s"] = int(kill["at_s"] * share)
        kill["for_s"] = max(1, int(kill["for_s"] * share))
    if fields["pipelines_start_s"]:
        _scale_backlog(fields, share)
    search = fields["search"]
    if search:
        for name in ("step_s", "confirm_s"):
            search[name] = max(3, min(search[name], int(search[name] * share)))
        search["budget_s"] *= share


def check_thresholds(workload: Workload, published: Mapping[str, Sequence[str]]) -> None:
    """Raise DefinitionError for a threshold on a pipeline or stage that a run does not measure.
    published: the stages of each of its pipelines."""
    for each in map(parse_threshold, workload.thresholds):
        if each.pipeline not in ("", *published):
            raise DefinitionError(
                f"The threshold {each.text!r} is for the pipeline {each.pipeline};"
                f" the run measures {', '.join(published)}."
            )
        of = [each.pipeline] if each.pipeline else list(published)
        stages = list(dict.fromkeys(stage for name in of for stage in published[name]))
        if each.subject not in (EVERY_STAGE, PIPELINE, INPUT, *stages):
            raise DefinitionError(
                f"The threshold {each.text!r} is for {each.subject}; stages of {', '.join(of)} in "
                f"this run: {', '.join(stages)}."
            )


def load_suite(name: str, directory: Path = SUITES_DIR) -> Suite:
    """One suite by name, or by the path of a TOML file, with its workloads and pipelines. Raises
    DefinitionError."""
    file = load_file("suite", SuiteFile.model_validate, name, directory)
    steps = [step for item in file.steps for step in _steps(name, item)]
    try:
        fields = file.model_dump(include={"name", "summary", "pace", "notify", "rotation"})
        return Suite.model_validate({**fields, "steps": tuple(steps)})
    except ValidationError as error:
        raise DefinitionError(f"suite {name}: {first_mistake(error)}.") from error


def load_study(name: str, directory: Path = STUDIES_DIR) -> Study:
    """One study by name, or by the path of a TOML file. Raises DefinitionError."""
    return load_file("study", Study.model_validate, name, directory)


def _steps(suite: str, item: SuiteItem) -> list[Step]:
    domain, base = chosen_workload(item.workload, item.domain or None)
    if base.scaling is not None:
        raise DefinitionError(
            f"suite {suite}: {item.workload} is a series of runs, for `run` only."
        )
    named = item.pipelines or base.pipelines or (DEFAULT_PIPELINE,)
    pipelines = load_pipelines(named)
    stages = item.stages or base.stages
    judged = stages or domain.spec.stage_names
    lines = (*base.thresholds, *item.thresholds)
    base = base.model_copy(update={"thresholds": lines, "domain": domain.place})
    try:
        checked(base, domain)
        published = {
            pipeline.name: stages_published(pipeline, domain.spec, judged)[0]
            for pipeline in pipelines
        }
        for name, result in published.items():
            if not result:
                raise DefinitionError(f"{name} runs none of its stages.")
        check_thresholds(base, published)
    except DefinitionError as error:
        raise DefinitionError(f"suite {suite}: {item.workload}: {error}") from error
    try:
        return [
            Step(
                workload=changed(base, rate, item.duration_s, item.warm_up_s, item.scale),
                pipelines=pipelines,
                stages=stages,
                every_s=item.every_s,
                asked=item.kind,
                baseline=item.baseline,
            )
            for rate in item.rates or (None,)
        ]
    except ValidationError as error:
        raise DefinitionError(f"suite {suite}: {item.workload}: {first_mistake(error)}.") from error
