"""A pipeline under test: an engine and its settings. One TOML file each in `pipelines/`."""

import re
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from schemas.model import Model, Name, Stage
from schemas.secret_settings import looks_secret

IncompleteWindows = Literal["withhold", "publish"]
INCOMPLETE_WINDOWS: Final[tuple[IncompleteWindows, ...]] = ("withhold", "publish")
# Values of an engine's settings.
SettingValue = bool | int | float | str | tuple[str, ...] | dict[str, str]
MAX_SETTINGS = 100
MAX_SETTING_CHARACTERS = 50_000


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`). The runner starts it only where a file of
    its own machine says the same (services/runtime/trusted.py).

    engine: what runs it; empty only in requests of versions before engines. stages: those that it
    publishes; empty: all that it can of the domain.
    incomplete_windows: `withhold` publishes a window with `complete` only when all its records are
    there; `publish` publishes what it has when the watermark passes.
    reads: of an engine with topology `chained`, stages that are computed from another stage than
    the domain says; names that a domain does not have are left out.
    max_restarts: how often its program is started again in one run when it was killed, if the
    engine resumes.
    Every other field is a setting of the engine, which `engine.toml` describes and which is checked
    when a file is read (services/runtime/engines.py). None may hold what looks like a secret: a run
    publishes its pipelines as they are.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SettingValue] = Field(init=False)

    name: Name
    summary: str
    engine: Name | Literal[""] = ""
    stages: tuple[Stage, ...] = ()
    incomplete_windows: IncompleteWindows = "withhold"
    reads: dict[Stage, Stage] = Field(default_factory=dict, max_length=20)
    max_restarts: int = Field(3, ge=0, le=100)

    @property
    def settings(self) -> dict[str, SettingValue]:
        """Settings of the engine by name."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, given: Any) -> Any:
        """Settings that were null did not apply, and a mode had a table of its own name."""
        if not isinstance(given, dict):
            return given
        mode = given.get("mode")
        table = given.get(mode) if isinstance(mode, str) else None
        flat = {name: value for name, value in given.items() if value is not None}
        if not isinstance(table, dict):
            return flat
        return {name: value for name, value in flat.items() if name != mode} | table

    @model_validator(mode="after")
    def _settings_are_public(self) -> "Pipeline":
        settings = self.settings
        if len(settings) > MAX_SETTINGS or len(str(settings)) > MAX_SETTING_CHARACTERS:
            raise ValueError(
                f"a pipeline has at most {MAX_SETTINGS} settings of together "
                f"{MAX_SETTING_CHARACTERS} characters"
            )
        name = secret_among(settings)
        if name:
            raise ValueError(f"{name} looks like a secret, and a run publishes its pipelines")
        return self


def secret_among(settings: dict[str, Any]) -> str:
    """The name of a setting, or of a part of one, that looks like a secret; or empty."""
    for name, value in settings.items():
        parts = list(value.items()) if isinstance(value, dict) else [(name, value)]
        if isinstance(value, list | tuple):
            parts = [(re.split("[=:]", str(one))[0], one) for one in value]
        for part, text in parts:
            key = "" if isinstance(value, list | tuple) else str(part)
            if looks_secret(key, str(text)):
                return str(part)
    return ""
