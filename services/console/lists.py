"""Definitions as plain values for `--json`; domains, engines and suites as tables.

All with their main fields, or one in full. Raises DefinitionError if the name does not exist.
"""

from typing import Any

from rich.console import Console

from schemas.commands import RunSuite
from schemas.domain import DomainSpec, StageSpec
from schemas.engine import Ability, EngineSpec, Setting
from schemas.pipeline import Pipeline
from schemas.suite import Pace, Suite
from services.console.run_command import RunError
from services.console.terminal import headed, show_entries
from services.definitions.domains import Domain, domain_names, load_domain
from services.definitions.engines import Engine, Installed, installed, load_engine, load_engines
from services.definitions.pipelines import PIPELINES_DIR, load_pipeline, names
from services.definitions.trusted import keep_suite
from services.definitions.workloads import (
    STUDIES_DIR,
    SUITES_DIR,
    WORKLOADS_DIR,
    chosen_workload,
    load_study,
    load_suite,
    load_workload,
)
from services.runtime.events import open_events
from services.runtime.kafka import CONSOLE
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings

Plain = dict[str, Any] | list[dict[str, Any]]


def show_engines(console: Console, name: str | None, settings: ServiceSettings) -> None:
    """List all engines with their summaries, or describe one. Raises DefinitionError."""
    if name:
        _explain(console, load_engine(name), settings)
        return
    states = (
        (each.spec, installation_state(installed(each, settings)))
        for each in load_engines().values()
    )
    show_entries(console, ((spec.name, f"{spec.summary} ({state})") for spec, state in states))


def show_domains(console: Console, name: str | None) -> None:
    """List all domains with their summaries, or describe one. Raises DefinitionError."""
    if name:
        _explain_domain(console, load_domain(name))
        return
    show_entries(console, ((each, load_domain(each).spec.summary) for each in domain_names()))


def _explain_domain(console: Console, domain: Domain) -> None:
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


def installation_state(place: Installed) -> str:
    """`2.2.1, installed`; `not installed, about 860 MB at first use`; `4.3.0, comes with
    Tidegauge`."""
    install, version = place.engine.spec.install, place.version()
    if not (install.python or install.jars or place.java_sources):
        return f"{version}, comes with Tidegauge" if version else "needs no installation"
    try:
        lacking = place.lacking()
    except OSError as error:
        return f"its folder cannot be read: {error}"
    if not lacking:
        state = "installed"
    elif place.folder.is_dir():
        state = f"its {' and '.join(lacking)} will be updated on next use"
    else:
        state = f"not installed, about {install.size_mb} MB on first use"
    return f"{version}, {state}" if version else state


def _explain(console: Console, engine: Engine, settings: ServiceSettings) -> None:
    spec = engine.spec
    console.print(headed(spec.name, spec.summary), soft_wrap=True)
    lines = [spec.details] if spec.details else []
    lines += [line for ability in spec.abilities for line in _ability(ability)]
    lines += ["Settings of its pipelines:"] if spec.settings else []
    lines += [f"  {_setting(name, each)}" for name, each in spec.settings.items()]
    lines += [f"Pipelines: {', '.join(_pipelines(spec)) or 'none'}", spec.install.note]
    lines += [f"State: {installation_state(installed(engine, settings))}"]
    others = (installed(engine.at(version), settings) for version in spec.versions)
    lines += [f"Also: {installation_state(place)}" for place in others]
    lines += [f"Defined in {engine.folder}"]
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def _ability(ability: Ability) -> list[str]:
    """What pipelines with these settings support, and why they do not support the rest."""
    which = ", ".join(f"{name} {' or '.join(values)}" for name, values in ability.when.items())
    by_reason: dict[str, list[str]] = {}
    for need, reason in ability.cannot.items():
        by_reason.setdefault(reason, []).append(need)
    return [
        f"{which or 'Every pipeline'}: {', '.join(ability.can)}",
        *(f"  not {', '.join(needs)}: {reason}" for reason, needs in by_reason.items()),
    ]


def _setting(name: str, setting: Setting) -> str:
    """`watermark_s = 10, 0 to 86400. How far behind …`"""
    default = setting.default
    shown = ", ".join(default) if isinstance(default, tuple) else default
    allowed = " or ".join(setting.choices)
    if setting.min is not None and setting.max is not None:
        allowed = f"{setting.min:g} to {setting.max:,.0f}"
    given = name if default is None else f"{name} = {shown}" if shown != "" else name
    return f"{given}{f' ({allowed})' if allowed else ''}. {setting.help}"


def _pipelines(spec: EngineSpec) -> list[str]:
    return [each for each in names(PIPELINES_DIR) if load_pipeline(each).engine == spec.name]


def workloads(name: str | None, domain: str | None) -> Plain:
    """Workloads of all domains; or one, on its own domain or another."""
    if name:
        return chosen_workload(name, domain)[1].model_dump(mode="json")
    result = [(load_workload(each), "") for each in names(WORKLOADS_DIR)]
    for of_domain in map(load_domain, domain_names()):
        own = of_domain.folder / "workloads"
        result += [(load_workload(each, own), of_domain.spec.name) for each in names(own)]
    return [
        {"name": item.name, "summary": item.summary, "domain": domain or item.domain}
        for item, domain in result
    ]


def pipelines(name: str | None) -> Plain:
    """Pipelines with their engines."""
    if name:
        return load_pipeline(name).model_dump(mode="json")
    return [_pipeline(load_pipeline(each)) for each in names(PIPELINES_DIR)]


def _pipeline(pipeline: Pipeline) -> dict[str, Any]:
    return {"name": pipeline.name, "summary": pipeline.summary, "engine": pipeline.engine}


def domains(name: str | None) -> Plain:
    """Domains with their stages."""
    if name:
        domain = load_domain(name)
        return {**domain.spec.model_dump(mode="json"), "folder": str(domain.folder)}
    specs = [load_domain(each).spec for each in domain_names()]
    return [
        {"name": spec.name, "summary": spec.summary, "stages": list(spec.stage_names)}
        for spec in specs
    ]


def engines(name: str | None, settings: ServiceSettings) -> Plain:
    """Engines and whether they are installed."""
    if name:
        engine = load_engine(name)
        state = installation_state(installed(engine, settings))
        return {**engine.spec.model_dump(mode="json"), "state": state, "folder": str(engine.folder)}
    return [
        {
            "name": each.spec.name,
            "summary": each.spec.summary,
            "state": installation_state(installed(each, settings)),
        }
        for each in load_engines().values()
    ]


def suites(name: str | None) -> Plain:
    """Suites with their steps."""
    if name:
        return load_suite(name).model_dump(mode="json")
    result = [load_suite(each) for each in names(SUITES_DIR)]
    return [
        {"name": item.name, "summary": item.summary, "steps": [step.label for step in item.steps]}
        for item in result
    ]


def studies() -> Plain:
    """Studies with their scales."""
    result = [load_study(each) for each in names(STUDIES_DIR)]
    return [
        {"name": item.name, "question": item.question, "scales": list(item.scales)}
        for item in result
    ]


def ask_for_suite(settings: ServiceSettings, suite: Suite) -> None:
    """Make the running conductor execute a suite, replacing its current one. Raises OSError, and
    RunError if the command was not accepted."""
    if not settings.store_url:
        keep_suite(settings.data, suite)
    events = open_events(settings, CONSOLE)
    events.send(RunSuite(suite=suite))
    if events.flush(0) or events.failed:
        raise RunError(f"The broker did not accept the suite {suite.name}, which does not run.")


def show_suites(console: Console, name: str | None) -> None:
    """List all suites with their summaries, or the steps of one. Raises DefinitionError."""
    if not name:
        show_entries(console, ((each, load_suite(each).summary) for each in names(SUITES_DIR)))
        return
    suite = load_suite(name)
    pace = suite.pace
    console.print(headed(suite.name, suite.summary), soft_wrap=True)
    for number, step in enumerate(suite.steps, 1):
        often = f", at most every {step.every_s} s" if step.every_s else ""
        often += f" [{step.kind}]" if suite.rotation else ""
        length = f"{step.workload.phases.measure_s} s measured"
        console.print(f"  {number}. {step.label}: {length}{often}", soft_wrap=True)
    shares = [f"{kind} {share:g}" for kind, share in suite.rotation.items()]
    kept = f"Pipelines that the next run needs are kept running, at most {pace.keep_warm_s} s."
    for line in (
        *([f"Shares of run time: {', '.join(shares)}."] if shares else []),
        *([f"At most {pace.hours_per_day:g} h a day."] if pace.hours_per_day < 24 else []),
        f"At most {_cores(pace)} on average, and at least {pace.pause_s} s between runs.",
        *([kept] if pace.keep_warm_s > pace.pause_s else []),
        f"Waits while other processes use more than {pace.busy_share:.0%} of it, at most "
        f"{pace.patience_s} s.",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _cores(pace: Pace) -> str:
    share = f"{pace.max_cpu_share:.0%} of the processor"
    return share if pace.max_cores is None else f"{share} and {pace.max_cores:g} cores"


def position_sentence(position: dict[str, Any], time_ms: int | None = None) -> str:
    """`Suite default, round 2, step 3 of 4 (…): running …`."""
    doing = position["state"]
    if doing == "running":
        doing = f"running {position['run_id']}"
    elif doing == "waiting":
        doing = f"waiting, {position['reason']}"
    elif doing == "skipping":
        doing = f"skipped, {position['reason'].rstrip('.')}"
    elif position["next_at_ms"] is not None:
        left_s = (position["next_at_ms"] - (now_ms() if time_ms is None else time_ms)) / 1000
        doing = f"pausing, next in {max(0, left_s):.0f} s"
    return (
        f"Suite {position['name']}, round {position['round']}, step {position['step']} of "
        f"{position['steps']} ({position['label']}): {doing}. {position['runs']} runs so far."
    )


def skipped_sentences(position: dict[str, Any]) -> list[str]:
    """`Skipped: at-90-percent at …: No sustainable rate is known …`, one for each such step."""
    return [f"Skipped: {each}" for each in position.get("skipped", ())]
