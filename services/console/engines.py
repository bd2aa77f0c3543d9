"""The verb `engines`."""

from rich.console import Console

from schemas.engine import Ability, EngineSpec, Setting
from services.runtime.definitions import PIPELINES_DIR, load_pipeline, names
from services.runtime.engines import Engine, load_engine, load_engines


def show_engines(console: Console, name: str | None) -> None:
    """All engines with their summaries, or one in words. Raises DefinitionError."""
    if name:
        _explain(console, load_engine(name))
        return
    for each in load_engines().values():
        console.print(f"[bold]{each.spec.name}[/bold]  {each.spec.summary}", soft_wrap=True)


def _explain(console: Console, engine: Engine) -> None:
    spec = engine.spec
    console.print(f"[bold]{spec.name}[/bold]  {spec.summary}", soft_wrap=True)
    lines = [line for one in spec.abilities for line in _ability(one)]
    lines += ["Settings of its pipelines:"] if spec.settings else []
    lines += [f"  {_setting(name, one)}" for name, one in spec.settings.items()]
    lines += [f"Pipelines: {', '.join(_pipelines(spec)) or 'none'}", spec.install.note]
    lines += [f"Defined in {engine.folder}"]
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _ability(ability: Ability) -> list[str]:
    """What pipelines with certain settings can do, and why they cannot do the rest."""
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
