"""A pipeline under test: an engine and its settings. One TOML file each in `pipelines/`."""

import re
from typing import Any, Final, Literal

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from schemas.model import Model, Name, Stage, looks_secret

IncompleteWindows = Literal["withhold", "publish"]
INCOMPLETE_WINDOWS: Final[tuple[IncompleteWindows, ...]] = ("withhold", "publish")
FOR = "for"
Purpose = Literal["latency", "throughput", "burst"]
# Types of an engine's settings.
SettingValue = bool | int | float | str | tuple[str, ...] | dict[str, str]
MAX_SETTINGS = 100
MAX_SETTING_CHARACTERS = 50_000


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`). The runner starts it only if a file of its
    own machine defines the same (services/definitions/trusted.py).

    engine: runs the pipeline. version: of the engine, empty: its default. stages: published stages;
    empty: all that it supports of the domain.
    incomplete_windows: `withhold` publishes a window with `complete` only when all its records have
    arrived; `publish` publishes its content when the watermark passes.
    reads: for an engine with topology `chained`, stages that read another stage than the domain
    declares; names unknown to the domain are ignored.
    purposes: `[for.PURPOSE]` in a file: fields that differ in workloads of that purpose, since what
    is best for latency is not for throughput (OSPBench, Table 1).
    cores: processors that its program may use with all its processes, such as 0.5 or 2; None: all.
    max_restarts: how often its program is restarted in one run after being killed, if the engine
    resumes.
    Every other field is a setting of the engine, described in `engine.toml` and validated when a
    file is read (services/definitions/engines.py). None may look like a secret: a run publishes its
    pipelines unchanged.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SettingValue] = Field(init=False)

    name: Name
    summary: str
    engine: Name
    version: str = Field("", max_length=41)
    stages: tuple[Stage, ...] = ()
    incomplete_windows: IncompleteWindows = "withhold"
    reads: dict[Stage, Stage] = Field(default_factory=dict, max_length=20)
    purposes: dict[Purpose, dict[str, Any]] = Field(
        default_factory=dict, validation_alias=AliasChoices(FOR, "purposes")
    )
    cores: float | None = Field(None, ge=0.1, le=1024, allow_inf_nan=False)
    max_restarts: int = Field(3, ge=0, le=100)

    @property
    def settings(self) -> dict[str, SettingValue]:
        """Settings of the engine by name."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _settings_are_public(self) -> "Pipeline":
        settings = self.settings
        if len(settings) > MAX_SETTINGS or len(str(settings)) > MAX_SETTING_CHARACTERS:
            raise ValueError(
                f"a pipeline has at most {MAX_SETTINGS} settings with "
                f"{MAX_SETTING_CHARACTERS} characters in total"
            )
        name = secret_among(settings)
        if name:
            raise ValueError(f"{name} looks like a secret, and runs publish their pipelines")
        return self


def secret_among(settings: dict[str, Any]) -> str:
    """The name of a setting, or of a part of one, that looks like a secret; else empty."""
    for name, value in settings.items():
        parts = list(value.items()) if isinstance(value, dict) else [(name, value)]
        if isinstance(value, list | tuple):
            parts = [(re.split("[=:]", str(each))[0], each) for each in value]
        for part, text in parts:
            key = "" if isinstance(value, list | tuple) else str(part)
            if looks_secret(key, str(text)):
                return str(part)
    return ""
