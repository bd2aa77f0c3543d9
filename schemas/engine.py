"""An engine: what runs pipelines, as its `engine.toml` says; and the contract of its program.

The program is started with the path of one JSON file (`EnginePlan`) as its last argument. Its
standard input is held open and its end means: end. It logs on standard error and says lines of JSON
on standard output, each one of `LINE`:

    {"event": "ready", "detail": {}}
    {"event": "progress", "stage": "parse", "batch_id": 7, "input_rows": 100}
    {"event": "failed", "stage": "parse", "reason": "the broker is gone"}
    {"event": "undecodable", "topic": "readings", "value": "bm8gcmVjb3Jk", "bytes": 9}

SIGTERM ends it. It needs no producer for the results bus and no secret of it.
"""

import re
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import Base64Bytes, Field, JsonValue, StringConstraints, TypeAdapter, model_validator

from schemas.domain import Column, DomainSpec
from schemas.model import Model, Name, Stage
from schemas.pipeline import INCOMPLETE_WINDOWS, IncompleteWindows, Pipeline, SettingValue

REASON_CHARACTERS: Final = 600
PLACE: Final = re.compile(r"\{([a-z_]+)\}")
Topology = Literal["independent", "chained", "via-topics"]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Need = Literal[
    "copy",
    "decode",
    "filter",
    "lookup",
    "join",
    "window_join",
    "aggregate counted",
    "aggregate closed",
    "change counted",
    "change closed",
]
NEEDS: Final[tuple[Need, ...]] = get_args(Need)
TYPES: Final[dict[str, tuple[type, str]]] = {
    "text": (str, "a text"),
    "integer": (int, "a whole number"),
    "number": (float, "a number"),
    "flag": (bool, "true or false"),
    "texts": (tuple, "a list of texts"),
    "table": (dict, "a table of texts"),
}


class Setting(Model):
    """A setting of an engine's pipelines. default: None where a pipeline must give it. choices:
    the values that are allowed, all if empty; min, max: of a number, inclusive."""

    type: Literal["text", "integer", "number", "flag", "texts", "table"]
    default: SettingValue | None = None
    choices: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    help: str = Field(min_length=1)

    def checked(self, value: Any) -> SettingValue:
        """The value as the setting's type. Raises ValueError with what is allowed."""
        kind, allowed = TYPES[self.type]
        if isinstance(value, list):
            value = tuple(value)
        if self.type == "number" and type(value) is int:
            value = float(value)
        if type(value) is not kind or not _only_texts(value):
            raise ValueError(f"must be {allowed}")
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        if isinstance(value, int | float):
            if self.min is not None and not value >= self.min:
                raise ValueError(f"must be at least {self.min:g}")
            if self.max is not None and not value <= self.max:
                raise ValueError(f"must be at most {self.max:g}")
        return cast(SettingValue, value)

    @model_validator(mode="after")
    def _default_fits(self) -> "Setting":
        if self.default is not None:
            self.checked(self.default)
        return self


def _only_texts(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return all(isinstance(one, str) for one in inner)


class Ability(Model):
    """What pipelines with certain settings can do.

    when: by setting the values for which this holds. can: what stages may need (StageSpec.needs);
    cannot: all else, each with its reason. requires: by setting the values that such a
    pipeline must have. starts_first: whether such a pipeline is started before others. topology:
    where a stage that reads a stage has its rows from. independent: it computes them from the
    inputs again, by itself; chained: from the stage that it reads, in the same program; via-topics:
    from the output topic of the stage that it reads. scales_by: settings that are its number of
    workers; none where it has none to set.
    """

    when: dict[Column, tuple[str, ...]] = Field(default_factory=dict)
    can: tuple[Need, ...]
    cannot: dict[Need, str] = Field(default_factory=dict)
    incomplete_windows: tuple[IncompleteWindows, ...] = ("withhold",)
    requires: dict[Column, tuple[str, ...]] = Field(default_factory=dict)
    starts_first: bool = False
    topology: Topology = "independent"
    scales_by: tuple[Column, ...] = Field((), max_length=8)

    @model_validator(mode="after")
    def _says_all(self) -> "Ability":
        for need in NEEDS:
            if (need in self.can) == (need in self.cannot):
                raise ValueError(f"{need!r} must be in can, or in cannot with a reason")
        if not set(self.incomplete_windows) <= set(INCOMPLETE_WINDOWS):
            raise ValueError("incomplete_windows: withhold or publish")
        return self

    def holds_for(self, settings: dict[str, Any]) -> bool:
        """Whether a pipeline with these settings is one of those."""
        return all(settings.get(name) in values for name, values in self.when.items())


class Install(Model):
    """How an engine comes onto a machine.

    note: in words. packages: of Tidegauge's own environment, beside those that it imports.
    versions: packages or jars whose version is the engine's. The rest is for an engine that is
    installed when it is first asked for, into a folder of its own, and names files of the engine's
    folder. python: packages with hashes, in pip's format, for an environment of its own. jars: an
    Ivy file with a configuration `run`, for the class path, and `compiler`, if there are sources;
    beside it is its lock. jars_of: packages of its environment whose folder `jars` or `lib` is on
    the class path, too. sources: folders with Java, which is compiled into `classes`, and with
    Python modules, which are on PYTHONPATH. size_mb: what all this takes.
    """

    note: str
    packages: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    python: FileName | Literal[""] = ""
    jars: FileName | Literal[""] = ""
    jars_of: tuple[Column, ...] = ()
    sources: tuple[str, ...] = ()
    size_mb: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> "Install":
        if self.jars_of and not self.python:
            raise ValueError("jars_of names packages, so it needs python")
        return self


class Processes(Model):
    """What the processes of a pipeline look like below the runner.

    main: name of the process that does the work; empty for the one that the runner starts. workers:
    name of those below it. starts_slowly: whether several should not start at once. resumes:
    whether the program, killed and started again, goes on where it was; without, its death fails
    the run.
    """

    main: str = ""
    workers: str = ""
    starts_slowly: bool = False
    resumes: bool = False


class EngineSpec(Model):
    """An engine (`engine.toml`).

    module: a module of Python that is the program; command: a program, looked for in the folder of
    `engine.toml` and on the PATH; `{name}` in its words stands for a whole number or a choice among
    the pipeline's settings. environment: names of variables that it gets beside what every
    program gets, as regular expressions. secrets: variables for
    settings that nobody may read; the first is for settings of pipelines.
    """

    name: Name
    summary: str
    install: Install
    module: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_.]*)?$")
    command: tuple[str, ...] = ()
    settings: dict[Column, Setting] = Field(default_factory=dict, max_length=100)
    abilities: tuple[Ability, ...] = Field(min_length=1, max_length=20)
    processes: Processes = Processes()
    environment: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> "EngineSpec":
        if bool(self.module) == bool(self.command):
            raise ValueError("an engine has either a module or a command")
        own = set(Pipeline.model_fields)
        for name in self.settings:
            if name in own:
                raise ValueError(f"every pipeline has {name}; it cannot be a setting of an engine")
        for ability in self.abilities:
            for name in (*ability.when, *ability.requires):
                if name not in self.settings:
                    raise ValueError(f"abilities name {name}, which is no setting")
            for name in ability.scales_by:
                if name not in self.settings or self.settings[name].type != "integer":
                    raise ValueError(f"scales_by names {name}, which is no setting of integers")
        for name in (name for word in self.command for name in PLACE.findall(word)):
            setting = self.settings.get(name)
            if setting is None or not (setting.type == "integer" or setting.choices):
                raise ValueError(
                    f"command names {{{name}}}, which is no whole number and no choice among the "
                    "settings"
                )
        return self

    def command_for(self, settings: dict[str, Any]) -> tuple[str, ...]:
        """The command of a pipeline with these settings."""
        return tuple(PLACE.sub(lambda at: str(settings[at[1]]), word) for word in self.command)

    def ability_of(self, pipeline: Pipeline) -> Ability | None:
        """What a pipeline can do; None where no such combination of settings can be."""
        settings = pipeline.settings
        return next((one for one in self.abilities if one.holds_for(settings)), None)


class EnginePlan(Model):
    """What the program of one pipeline of one run is told.

    bootstrap, properties: where Kafka is and librdkafka's properties for a client there, which may
    hold secrets. start_offsets: by input topic the offset of each partition to begin at;
    output_offsets: by topic of `outputs`, where those of this run begin. outputs: by stage to
    publish its topic. wire_format: of the inputs; outputs are Avro, and copies what
    they copy. group: what the names of its consumer groups, transactions and internal topics begin
    with. warm_up_s: how long the load goes on at least before it is measured. folder: for files
    of the pipeline; it goes when the run has ended, and is there when the program is started again.
    """

    run_id: str
    pipeline: Pipeline
    domain: DomainSpec
    outputs: dict[Stage, str] = Field(min_length=1)
    start_offsets: dict[str, tuple[int, ...]]
    output_offsets: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    bootstrap: str
    properties: dict[str, str] = Field(default_factory=dict)
    wire_format: Literal["avro", "json"] = "avro"
    dead_letter_topic: str
    group: str
    warm_up_s: int
    folder: str


_Text = Annotated[str, StringConstraints(max_length=10_000)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Rate = Annotated[float, Field(ge=0)]


class ReadyLine(Model):
    """The pipeline reads its inputs. detail: what people should know of it."""

    event: Literal["ready"]
    detail: dict[str, JsonValue] = Field(default_factory=dict)


class ProgressLine(Model):
    """What one stage did: fields of `results.pipeline`. watermark: epoch milliseconds; lag_records:
    records of its inputs that it has not read yet."""

    event: Literal["progress"]
    stage: Stage
    batch_id: Annotated[int, Field(ge=-1, lt=2**63)] = 0
    input_rows: _Count
    input_rows_per_second: _Rate | None = None
    processed_rows_per_second: _Rate | None = None
    batch_duration_ms: _Count | None = None
    state_rows: _Count | None = None
    state_bytes: _Count | None = None
    watermark: Annotated[int, Field(gt=-(2**63), lt=2**63)] | None = None
    lag_records: _Count | None = None
    detail: dict[str, JsonValue] = Field(default_factory=dict)


class FailedLine(Model):
    """The pipeline cannot go on. stage: empty where it is no single one's fault."""

    event: Literal["failed"]
    stage: Stage | Literal[""] = ""
    reason: _Text


class UndecodableLine(Model):
    """A value of an input that is no record of it. partition, offset: -1 where the engine does not
    tell its program. value: in Base64, its first VALUE_BYTES bytes; bytes: how long it is."""

    event: Literal["undecodable"]
    topic: Annotated[str, StringConstraints(max_length=249)]
    partition: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    offset: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    value: Base64Bytes | None = None
    bytes: _Count = 0


Line = ReadyLine | ProgressLine | FailedLine | UndecodableLine
LINE: Final[TypeAdapter[Line]] = TypeAdapter(Annotated[Line, Field(discriminator="event")])
