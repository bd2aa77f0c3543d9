"""The verb `engines`."""

from rich.console import Console

from schemas.engine import Ability, EngineSpec, Setting
from services.console.terminal import headed
from services.definitions.engines import Engine, Installed, installed, load_engine, load_engines
from services.definitions.pipelines import PIPELINES_DIR, load_pipeline, names
from services.runtime.settings import ServiceSettings


def show_engines(console: Console, name: str | None, settings: ServiceSettings) -> None:
    """List all engines with their summaries, or describe one. Raises DefinitionError."""
    if name:
        _explain(console, load_engine(name), settings)
        return
    for each in load_engines().values():
        state = installation_state(installed(each, settings))
        console.print(headed(each.spec.name, f"{each.spec.summary} ({state})"), soft_wrap=True)


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
    lines = [line for one in spec.abilities for line in _ability(one)]
    lines += ["Settings of its pipelines:"] if spec.settings else []
    lines += [f"  {_setting(name, one)}" for name, one in spec.settings.items()]
    lines += [f"Pipelines: {', '.join(_pipelines(spec)) or 'none'}", spec.install.note]
    lines += [f"State: {installation_state(installed(engine, settings))}"]
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
