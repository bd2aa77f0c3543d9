"""Domains as folders: `domains/NAME/` with `domain.toml` and the Avro schemas that it names.

Any other folder works too (`--domain PATH`). Optional files:

records.py      the class `Records`: makes the records of a load (schemas/records.py)
content.py      the class `Content`: options of a workload's [content]
recording       a key of domain.toml: the file that a load replays without `records.py`
                (recordings.py); one for all inputs, or one for each of them by name
"""

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ConfigDict, ValidationError

from schemas.codec import said_by
from schemas.content import Content
from schemas.domain import (
    HEADER,
    ROW_KINDS,
    RUN_ID,
    SEQUENCE,
    WINDOW_END,
    WINDOW_START,
    DomainSpec,
    StageSpec,
)
from schemas.load import Replay
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from schemas.workload import Workload
from services.definitions.row_files import InputError, check_header, no_column, opened_csv
from services.runtime.files import read_toml
from services.runtime.settings import ROOT

DOMAINS_DIR = ROOT / "domains"
FILE = "domain.toml"
MAX_FILES = 10_000


_TIME = "timestamp-millis"
_LOGICAL_TYPES = (_TIME, "timestamp-micros", "date")  # those that pyruhvro reads
Types = dict[str, dict[str, Any]]  # the Avro type of each column, by record


@dataclass(frozen=True)
class Domain:
    """A domain and its folder. recording: the file of each input, if the domain has any."""

    spec: DomainSpec
    folder: Path
    recording: dict[str, Path] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Finds it by `load_domain`: its name if it is installed, else its folder."""
        is_installed = self.folder.parent == DOMAINS_DIR.resolve()
        return self.folder.name if is_installed else str(self.folder)


def domain_names(directory: Path = DOMAINS_DIR) -> tuple[str, ...]:
    """Names of the domains of a directory, sorted."""
    return tuple(sorted(path.parent.name for path in directory.glob(f"*/{FILE}")))


def load_domain(name: str, directory: Path = DOMAINS_DIR) -> Domain:
    """One domain by name, or by the path of its folder. Raises DefinitionError."""
    folder = folder_of(name, directory)
    if not (folder / FILE).is_file() and "/" in name:
        raise DefinitionError(f"{folder / FILE} is not a file.")
    if not (folder / FILE).is_file():
        here = f" The folder is ./{name}." if (Path(name) / FILE).is_file() else ""
        raise DefinitionError(unknown("domain", name, domain_names(directory)) + here)
    try:
        fields = read_toml(folder / FILE)
        schemas = fields["schemas"] = dict(_schema(path) for path in _newest(folder))
        fields["stages"] = [with_table(folder, each, schemas) for each in fields.get("stages", [])]
        recording = fields.pop("recording", {})
        spec = DomainSpec.model_validate(fields)
        check_columns(spec)
        files = _recording(folder.resolve(), spec, recording)
    except ValidationError as error:
        raise DefinitionError(f"{folder / FILE}: {first_mistake(error)}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DefinitionError(f"{folder / FILE}: {' '.join(str(error).split())}.") from error
    return Domain(spec, folder.resolve(), files)


def content_of(domain: Domain, content: Content) -> Content:
    """The content of a workload, validated against the options of the domain. Raises
    DefinitionError."""
    module = domain_module(domain, "content")
    model: type[Content] = getattr(module, "Content", _NoOptions)
    try:
        return model.model_validate(content.model_dump(exclude_unset=True))
    except ValidationError as error:
        raise DefinitionError(
            f"For the domain {domain.spec.name} {first_mistake(error, within='content')}."
        ) from error


def checked(workload: Workload, domain: Domain) -> Workload:
    """A workload with all options of its content, including the domain's. Raises
    DefinitionError."""
    content = content_of(domain, workload.content)
    if content.copies > 1 and not isinstance(workload.load, Replay):
        raise DefinitionError("content.copies applies only to a load of the shape 'replay'.")
    return workload.model_copy(update={"content": Content.model_validate(content.model_dump())})


def domain_module(domain: Domain, name: str) -> ModuleType | None:
    """A module of the domain's folder; None if it does not exist. Raises DefinitionError.

    The folder is imported as a package, so its modules can import each other relatively. A change
    of any file in it makes a new package.
    """
    if not (domain.folder / f"{name}.py").is_file():
        return None
    package = f"tidegauge_domain_{folder_digest(domain.folder)[:32]}"
    if package not in sys.modules:
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(domain.folder)]
        sys.modules[package] = module_from_spec(spec)
    compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_module(f"{package}.{name}")
    except (Exception, SystemExit) as error:  # domain code may raise anything
        raise DefinitionError(f"{domain.folder / name}.py fails: {said_by(error)}.") from error
    finally:
        sys.dont_write_bytecode = compiles


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of a folder's files, except hidden and compiled ones.
    Raises DefinitionError."""
    digest = hashlib.sha256()
    try:
        for path in _files(folder):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    except OSError as error:
        raise DefinitionError(f"{folder} cannot be read: {error}.") from error
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_file() and not any(part[0] == "." or part == "__pycache__" for part in inside):
            count += 1
            if count > MAX_FILES:
                raise DefinitionError(f"{folder} has more than {MAX_FILES} files.")
            yield path


class _NoOptions(Content):
    """Content of a domain without options of its own."""

    model_config = ConfigDict(extra="forbid")


def _recording(folder: Path, spec: DomainSpec, given: Any) -> dict[str, Path]:
    """The recorded file of each input. Raises ValueError."""
    inputs = [each.name for each in spec.inputs]
    files = dict.fromkeys(inputs, given) if isinstance(given, str) else given
    if not isinstance(files, dict) or (files and set(files) != set(inputs)):
        raise ValueError(f"recording must be a file, or name one for each of {', '.join(inputs)}")
    result = {name: (folder / str(file)).resolve() for name, file in files.items()}
    for name, path in result.items():
        if not path.is_file() or not path.is_relative_to(folder):
            raise ValueError(f"recording: there is no file {files[name]} in the folder")
    return result


def _newest(folder: Path) -> list[Path]:
    """The newest `.avsc` version of each record in a folder."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("*.v*.avsc"), key=lambda p: int(p.name.split(".")[1][1:])):
        newest[path.name.split(".")[0]] = path
    return list(newest.values())


def _schema(path: Path) -> tuple[str, str]:
    try:
        raw = _without_docs(json.loads(path.read_bytes()))
        return raw["name"], json.dumps(raw, separators=(",", ":"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path.name} is not a named Avro schema: {said_by(error)}") from error


def _without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_docs(value) for name, value in schema.items() if name != "doc"}
    if isinstance(schema, list):
        return [_without_docs(item) for item in schema]
    return schema


def folder_of(name: str, directory: Path) -> Path:
    """The folder of a domain given by name, or by path."""
    return Path(name) if "/" in name else directory / name


def check_columns(spec: DomainSpec) -> None:
    """Raise ValueError if an input or stage names a missing record or column, a time in another
    unit than milliseconds, or a column has a logical type that is not read."""
    types: Types = {
        name: {field["name"]: field["type"] for field in json.loads(text)["fields"]}
        for name, text in spec.schemas.items()
    }
    for record, columns in types.items():
        for column, kind in columns.items():
            _check_logical_type(record, column, kind)
    for each in spec.inputs:
        _require(each.record in types, f"there is no schema {each.record}")
        needed = (each.impossible.column,) if each.impossible else ()
        for name in (*HEADER, each.key, each.event_time, *needed):
            _require(name in types[each.record], f"{each.record} has no column {name!r}")
        _check_time(types, each.record, each.event_time)
        _require(spec.topics.count(each.topic) == 1, f"two inputs have the topic {each.topic}")
    for stage in spec.stages:
        if stage.record:
            _check_outputs(spec, types, stage)
        _check_inputs(spec, types, stage)


def _require(holds: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not holds:
        raise ValueError(otherwise)


def _check_outputs(spec: DomainSpec, types: Types, stage: StageSpec) -> None:
    """Check the record of a stage."""
    _require(stage.record in types, f"there is no schema {stage.record}")
    computed = {aggregate.column for aggregate in stage.aggregates} | {
        change.column for change in stage.changes
    }
    computed |= stage.columns.keys()
    for name in (*sorted(computed), *stage.keys, stage.key, *_address(spec, stage)):
        _require(name in types[stage.record], f"{stage.record} has no column {name!r}")
    times = {each.event_time for each in spec.inputs_of(stage.name)} - computed
    if any(each.is_windowed for each in spec.chain(stage.name)):
        times |= {WINDOW_START, WINDOW_END}
    for name in sorted(times & types[stage.record].keys()):
        _check_time(types, stage.record, name)


def _address(spec: DomainSpec, stage: StageSpec) -> tuple[str, ...]:
    """The columns that identify an output."""
    chain = spec.chain(stage.name)
    last = next((each for each in reversed(chain) if each.kind not in ROW_KINDS), None)
    if last is None:
        return RUN_ID, SEQUENCE
    if last.kind == "join":
        return RUN_ID, *last.keys, spec.inputs_of(last.name)[0].event_time
    if last is not stage and any(each.complete for each in chain):
        return RUN_ID, *last.keys, WINDOW_START
    pair = [name for name, source in last.columns.items() if source.endswith(f".{SEQUENCE}")]
    return RUN_ID, *(pair or last.keys), WINDOW_START, WINDOW_END


@dataclass(frozen=True)
class _Known:
    """The columns that a stage can read. sources: as `of` and `columns` name them; every: those of
    all its records; some: those of some of them."""

    sources: Collection[str]
    every: Collection[str]
    some: Collection[str]


def _known(spec: DomainSpec, types: Types, stage: StageSpec) -> _Known:
    before = spec.chain(stage.name)[:-1]
    if any(each.kind not in ROW_KINDS for each in before):
        result = {name for record in spec.records_of(before[-1].name) for name in types[record]}
        return _Known(result, result, result)
    added = {name for each in before if each.table for name in each.table.columns}
    reads = {name for each in (*before, stage) for name in each.reads}
    inputs = {i.name: {*types[i.record], *added} for i in spec.inputs if i.name in reads}
    used = [inputs[each.name] for each in spec.inputs_of(stage.name)]
    sources = [f"{name}.{column}" for name, columns in inputs.items() for column in columns]
    return _Known(sources, set.intersection(*used), set.union(*used))


def _check_inputs(spec: DomainSpec, types: Types, stage: StageSpec) -> None:
    """Check the columns that a stage reads."""
    known = _known(spec, types, stage)

    def check_all(setting: str, names: Iterable[str], there: Collection[str]) -> None:
        for name in names:
            listed = ", ".join(sorted(there))
            reason = f"{setting} of the stage {stage.name}: there is no column {name!r}"
            _require(name in there, f"{reason}; there are: {listed}")

    check_all("keys", stage.keys, known.every)
    check_all("where", (each.column for each in stage.where), known.some)
    check_all(
        "aggregates", (of for aggregate in stage.aggregates for of in aggregate.of), known.sources
    )
    check_all("columns", stage.columns.values(), known.sources)
    check_all("once_per", stage.once_per, known.every)
    if stage.table:
        check_all("table", [stage.table.key], known.some)
    if stage.kind == "change":
        aggregates = [aggregate.column for aggregate in spec.stage(stage.reads[0]).aggregates]
        check_all("changes", (change.of for change in stage.changes), aggregates)
    elif stage.complete:
        check_all("complete", [stage.complete.column], known.every)


def _check_logical_type(record: str, column: str, kind: Any) -> None:
    for part in kind if isinstance(kind, list) else [kind]:
        logical = part.get("logicalType", _TIME) if isinstance(part, dict) else _TIME
        _require(
            logical in _LOGICAL_TYPES,
            f"the column {column!r} of {record} has the logical type {logical};"
            f" there are: {', '.join(_LOGICAL_TYPES)}",
        )


def _check_time(types: Types, record: str, column: str) -> None:
    kind = types[record][column]
    kinds = kind if isinstance(kind, list) else [kind]
    is_time = any(isinstance(each, dict) and each.get("logicalType") == _TIME for each in kinds)
    _require(is_time, f"the column {column!r} of {record} must be of the logical type {_TIME}")


def with_table(folder: Path, stage: dict[str, Any], schemas: dict[str, str]) -> dict[str, Any]:
    """A stage with the rows of its table: strings where the stage's record has strings, else
    numbers. Raises ValueError."""
    table = stage.get("table")
    if not isinstance(table, dict) or "file" not in table:
        return stage
    for name in ("key", "columns"):
        _require(name in table, f"the table {table['file']} needs {name}")
    path = (folder / str(table["file"])).resolve()
    is_inside = path.is_relative_to(folder.resolve())
    _require(is_inside, f"the table {table['file']} is outside the folder")
    schema = json.loads(schemas.get(stage.get("record", ""), '{"fields": []}'))
    texts = {field["name"] for field in schema["fields"] if "string" in str(field["type"])}
    key, columns = table["key"], table["columns"]
    rows = _rows(path, key, columns, texts)
    return stage | {"table": {"key": key, "columns": columns, "rows": rows}}


def _rows(
    path: Path, key: str, columns: Sequence[str], texts: Collection[str]
) -> dict[str, tuple[float | str, ...]]:
    """Values of the columns by that of the key. Raises ValueError with the file and the line."""
    rows: dict[str, tuple[float | str, ...]] = {}
    try:
        with opened_csv(path) as (header, lines):
            check_header(path, header, (key, *columns))
            for name in (key, *columns):
                if name not in header:
                    raise no_column(path, header, name, "")
            for line, cells in lines:
                try:
                    result = _row(header, cells, key, columns, texts)
                    _require(result[0] not in rows, f"{key} {result[0]!r} occurs a second time")
                except ValueError as error:
                    raise ValueError(f"{path.name}, line {line}: {error}") from error
                rows[result[0]] = result[1]
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from error
    return rows


def _row(
    header: Sequence[str],
    cells: Sequence[str],
    key: str,
    columns: Sequence[str],
    texts: Collection[str],
) -> tuple[str, tuple[float | str, ...]]:
    """The key and the values of a row. Raises ValueError."""
    _require(len(cells) == len(header), "the row has more or fewer columns than the header")
    row = dict(zip(header, cells, strict=True))
    _require(row[key] != "", f"{key} is empty")
    return row[key], tuple(
        row[column] if column in texts else _number(column, row[column]) for column in columns
    )


def _number(column: str, cell: str) -> float:
    _require(cell != "", f"{column} is empty")
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column} is {cell!r}, which is not a number") from None
