"""An engine as described by its `engine.toml`, and the contract of its program.

The program's last argument is the path of a JSON file (`EnginePlan`). It must end when its standard
input is closed. It logs to standard error and writes JSON lines to standard output, each one of
`LINE`:

    {"event": "ready", "detail": {}}
    {"event": "progress", "stage": "parse", "batch_id": 7, "input_rows": 100}
    {"event": "failed", "stage": "parse", "reason": "the broker is gone"}
    {"event": "undecodable", "topic": "readings", "value": "bm8gcmVjb3Jk", "bytes": 9}

SIGTERM ends it. It needs neither a producer for the results bus nor its secrets.
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
Version = Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+-]{0,40}$")]
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
    "text": (str, "a string"),
    "integer": (int, "an integer"),
    "number": (float, "a number"),
    "flag": (bool, "true or false"),
    "texts": (tuple, "a list of strings"),
    "table": (dict, "a table of strings"),
}


class Setting(Model):
    """A setting of an engine's pipelines. default: None if a pipeline must set it. choices: the
    allowed values, all if empty; min, max: of a number, inclusive."""

    type: Literal["text", "integer", "number", "flag", "texts", "table"]
    default: SettingValue | None = None
    choices: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    help: str = Field(min_length=1)

    def checked(self, value: Any) -> SettingValue:
        """The value as the setting's type. Raises ValueError with the allowed values."""
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
                raise ValueError(f"must be at least {self.min:.15g}")
            if self.max is not None and not value <= self.max:
                raise ValueError(f"must be at most {self.max:.15g}")
        return cast(SettingValue, value)

    @model_validator(mode="after")
    def _default_fits(self) -> "Setting":
        if self.default is not None:
            self.checked(self.default)
        return self


def _only_texts(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return all(isinstance(each, str) for each in inner)


class Ability(Model):
    """Capabilities of pipelines with certain settings.

    when: settings and values to which this applies. can: supported requirements of stages
    (StageSpec.needs); cannot: all others, each with the reason. requires: settings and values that
    such a pipeline must have. starts_first: start such a pipeline before others. topology: from
    where a stage that reads a stage gets its rows. independent: it computes them from the inputs
    again; chained: from the stage that it reads, in the same program; via-topics: from the output
    topic of the stage that it reads. scales_by: settings that set the number of workers; empty if
    there are none.
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
        """Whether this applies to a pipeline with these settings."""
        return all(settings.get(name) in values for name, values in self.when.items())


class Install(Model):
    """Installation of an engine.

    note: description. packages: required packages of Tidegauge's own environment. versions:
    packages or jars whose version is the engine's. The remaining fields are for an engine that is
    installed at first use into a folder of its own; they name files in the engine's folder. python:
    packages with hashes, in pip's format, for its virtual environment. jars: a lock of jars, those
    in the folder `run` for the class path, and in `compiler` if there are sources. jars_of:
    packages of its environment whose folder `jars` or `lib` is also on the class path.
    python_below: first Python, such as 3.13, for which its packages have no wheels. sources:
    folders with Java, which is compiled into `classes`, and with Python modules, which are on
    PYTHONPATH. size_mb: disk space of the installation.
    """

    note: str
    packages: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    python: FileName | Literal[""] = ""
    python_below: str = Field("", pattern=r"^(3\.\d+)?$")
    jars: FileName | Literal[""] = ""
    jars_of: tuple[Column, ...] = ()
    sources: tuple[str, ...] = ()
    size_mb: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> "Install":
        if self.jars_of and not self.python:
            raise ValueError("jars_of names packages, so it needs python")
        if self.python_below and not self.python:
            raise ValueError("python_below is of packages, so it needs python")
        return self


class OtherVersion(Model):
    """Another version of an engine, beside the one of `install`. python, jars: files in place of
    those of `install`."""

    python: FileName | Literal[""] = ""
    jars: FileName | Literal[""] = ""


class EngineProcesses(Model):
    """Processes of a pipeline below the runner.

    main: name of the process that does the work; empty for the one that the runner starts. workers:
    name of its child processes; workers_by: the setting with their number, if it may be 0.
    starts_slowly: whether several should not start at once. resumes:
    whether the program resumes after being killed and restarted; if not, its death fails the run.
    raises: whether it observes `raise_file` of its plan; raises_unless: the flag with which it does
    not. stores: whether it keeps state in `folder` of its plan.
    """

    main: str = ""
    workers: str = ""
    workers_by: Column | Literal[""] = ""
    starts_slowly: bool = False
    resumes: bool = False
    raises: bool = False
    raises_unless: Column | Literal[""] = ""
    stores: bool = False


class EngineSpec(Model):
    """An engine (`engine.toml`).

    summary: one line, for lists; details: more sentences. module: a Python module that is the
    program; command: a program, looked up in the folder of `engine.toml` and on the PATH; `{name}`
    in its words is replaced by an integer or choice setting of the pipeline. environment: names of
    variables passed in addition to those of every program, as regular expressions. secrets:
    variables for secret settings; the first is for settings of pipelines. versions: others that a
    pipeline can name, each installed into a folder of its own.
    """

    name: Name
    summary: str
    details: str = ""
    install: Install
    versions: dict[Version, OtherVersion] = Field(default_factory=dict, max_length=20)
    module: str = Field("", pattern=r"^([A-Za-z_][A-Za-z0-9_.]*)?$")
    command: tuple[str, ...] = ()
    settings: dict[Column, Setting] = Field(default_factory=dict, max_length=100)
    abilities: tuple[Ability, ...] = Field(min_length=1, max_length=20)
    processes: EngineProcesses = EngineProcesses()
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
                    raise ValueError(f"abilities name {name}, which is not a setting")
            for name in ability.scales_by:
                if name not in self.settings or self.settings[name].type != "integer":
                    raise ValueError(f"scales_by names {name}, which is not an integer setting")
        number = self.processes.workers_by
        if number and (number not in self.settings or self.settings[number].type != "integer"):
            raise ValueError(f"workers_by names {number}, which is not an integer setting")
        unless = self.processes.raises_unless
        if unless and (unless not in self.settings or self.settings[unless].type != "flag"):
            raise ValueError(f"raises_unless names {unless}, which is not a flag setting")
        for name in (name for word in self.command for name in PLACE.findall(word)):
            setting = self.settings.get(name)
            if setting is None or not (setting.type == "integer" or setting.choices):
                raise ValueError(
                    f"command names {{{name}}}, which is neither an integer setting nor a "
                    "setting with choices"
                )
        return self

    def command_for(self, settings: dict[str, Any]) -> tuple[str, ...]:
        """The command of a pipeline with these settings."""
        return tuple(PLACE.sub(lambda at: str(settings[at[1]]), word) for word in self.command)

    def has_workers(self, pipeline: Pipeline) -> bool:
        """Whether a pipeline has worker processes."""
        number = self.processes.workers_by
        if not number:
            return bool(self.processes.workers)
        return bool(pipeline.settings.get(number))

    def can_raise(self, pipeline: Pipeline) -> bool:
        """Whether the program of a pipeline observes `raise_file`."""
        unless = self.processes.raises_unless
        return self.processes.raises and not (unless and pipeline.settings.get(unless))

    def ability_of(self, pipeline: Pipeline) -> Ability | None:
        """Capabilities of a pipeline; None if its combination of settings is not supported."""
        settings = pipeline.settings
        return next((ability for ability in self.abilities if ability.holds_for(settings)), None)


SocketTransport = Literal["tcp", "udp", "zeromq"]


class SocketPlan(Model):
    """How a system behind sockets is fed and answers (docs/sockets.md). transport: of the records,
    which it receives at system_port; answers: of its results, which it sends to results_port; both
    ports are of `host`. tag: of the frames of the run, hexadecimal."""

    transport: SocketTransport
    answers: SocketTransport
    host: str
    system_port: int = Field(ge=1, le=65_535)
    results_port: int = Field(ge=1, le=65_535)
    tag: str = Field(pattern=r"^[0-9a-f]{16}$")


class EnginePlan(Model):
    """Input of the program of one pipeline of one run.

    bootstrap, properties: address of Kafka and librdkafka properties for its clients, which may
    contain secrets. start_offsets: for each input topic the start offset of each partition;
    output_offsets: the start offsets of this run in the topics of `outputs`. outputs: output topic
    of each published stage. wire_format: of the inputs; outputs are Avro, except copies, which keep
    the input's bytes. group: prefix of its consumer groups, transactions and internal topics.
    warm_up_s: minimum duration of the load before the measure phase. deadline_ms: of the workload;
    a window that event time has not passed is closed after that time without a record. folder: for
    files of the pipeline; kept over restarts of the program, removed at the end of the run.
    raise_file: once this file exists, the program removes it and throws in the function that
    decodes the next record; empty if it never will. socket: only for the engine `socket`.
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
    group: str
    warm_up_s: int
    deadline_ms: int
    folder: str
    raise_file: str = ""
    socket: SocketPlan | None = None


NO_BATCH: Final = -1  # batch_id of what is not of a single batch
_Text = Annotated[str, StringConstraints(max_length=10_000)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Rate = Annotated[float, Field(ge=0)]


class ReadyLine(Model):
    """The pipeline reads its inputs. detail: information for users."""

    event: Literal["ready"]
    detail: dict[str, JsonValue] = Field(default_factory=dict)


class ProgressLine(Model):
    """Progress of one stage: fields of `results.pipeline`. watermark: epoch milliseconds;
    lag_records: unread records of its inputs."""

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


class TasksLine(Model):
    """Tasks that ended since the previous line, by scheduler delay: of each of `delays_ms` the
    number of `tasks`."""

    event: Literal["tasks"]
    delays_ms: tuple[Annotated[int, Field(ge=0, le=86_400_000)], ...] = Field(max_length=100_000)
    tasks: tuple[Annotated[int, Field(ge=1, lt=2**31)], ...] = Field(max_length=100_000)

    @model_validator(mode="after")
    def _in_pairs(self) -> "TasksLine":
        if len(self.delays_ms) != len(self.tasks):
            raise ValueError("delays_ms and tasks must have the same length")
        return self


class FailedLine(Model):
    """The pipeline cannot continue. stage: empty if no single stage failed."""

    event: Literal["failed"]
    stage: Stage | Literal[""] = ""
    reason: _Text


VALUE_BYTES = 100_000


class UndecodableLine(Model):
    """An undecodable input value. partition, offset: -1 if the engine does not pass them to its
    program. value: its first VALUE_BYTES bytes in Base64; bytes: its size."""

    event: Literal["undecodable"]
    topic: Annotated[str, StringConstraints(max_length=249)]
    partition: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    offset: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    value: Base64Bytes | None = None
    bytes: _Count = 0


class ResultsLine(Model):
    """Frames on the way to and from a system behind sockets, so far. frames_received: records that
    the system says it received, None if it does not. sent, received: results of each stage, by the
    system's numbering; sent is None if it has not announced them."""

    event: Literal["results"]
    frames_received: _Count | None = None
    sent: dict[Stage, _Count | None]
    received: dict[Stage, _Count]
    duplicates: _Count = 0
    refused: _Count = 0


Line = ReadyLine | ProgressLine | TasksLine | FailedLine | UndecodableLine | ResultsLine
LINE: Final[TypeAdapter[Line]] = TypeAdapter(Annotated[Line, Field(discriminator="event")])
