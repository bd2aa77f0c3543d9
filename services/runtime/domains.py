"""Domains as folders: `domains/NAME/` with `domain.toml` and the Avro schemas that it names.

A folder from anywhere serves as well (`--domain PATH`). What else is in it is for the service that
uses it: `records.py` makes the records (generator), `data/` holds a recording.
"""

import csv
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.domain import HEADER, DomainSpec
from schemas.mistakes import first_mistake
from schemas.workload import Content, Windows, Workload
from services.runtime.definitions import DefinitionError, load_workload, unknown
from services.runtime.settings import ROOT

DOMAINS_DIR = ROOT / "domains"
FILE = "domain.toml"


@dataclass(frozen=True)
class Domain:
    """A domain and the folder that defines it. recording: in it, replayed where there is no
    `records.py`."""

    spec: DomainSpec
    folder: Path
    recording: Path | None = None


def domain_names(directory: Path = DOMAINS_DIR) -> tuple[str, ...]:
    """Names of the domains of a directory, sorted."""
    return tuple(sorted(path.parent.name for path in directory.glob(f"*/{FILE}")))


def load_domain(name: str, directory: Path = DOMAINS_DIR) -> Domain:
    """One domain by name, or by the path of its folder. Raises DefinitionError."""
    folder = Path(name) if "/" in name else directory / name
    if not (folder / FILE).is_file():
        raise DefinitionError(unknown("domain", name, domain_names(directory)))
    try:
        fields = tomllib.loads((folder / FILE).read_text())
        recording = fields.pop("recording", None)
        fields["stages"] = [_with_table(folder, one) for one in fields.get("stages", [])]
        fields["schemas"] = dict(_schema(path) for path in _newest(folder))
        spec = DomainSpec.model_validate(fields)
        _check_columns(spec)
    except ValidationError as error:
        raise DefinitionError(f"{folder / FILE}: {first_mistake(error)}.") from error
    except (OSError, ValueError, KeyError) as error:
        raise DefinitionError(f"{folder / FILE}: {' '.join(str(error).split())}.") from error
    folder = folder.resolve()
    return Domain(spec, folder, folder / recording if recording else None)


def load_workload_of(domain: Domain, name: str) -> Workload:
    """A workload on a domain: of its folder `workloads/`, or else the load, phases and rules of one
    of the installation, on all stages. Raises DefinitionError."""
    own = domain.folder / "workloads"
    if not name.endswith(".toml") and (own / f"{name}.toml").is_file():
        found = load_workload(name, own)
    else:
        found = load_workload(name)
        if found.domain not in (domain.spec.name, str(domain.folder)):
            content = Content(format=found.content.format, second_ms=found.content.second_ms)
            changed = {"content": content, "stages": (), "pipelines": (), "windows": Windows()}
            found = found.model_copy(update=changed)
    return found.model_copy(update={"domain": domain.spec.name})


def _newest(folder: Path) -> list[Path]:
    """The `.avsc` files of a folder, of each record the newest version."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("*.v*.avsc"), key=lambda p: int(p.name.split(".")[1][1:])):
        newest[path.name.split(".")[0]] = path
    return list(newest.values())


def _schema(path: Path) -> tuple[str, str]:
    raw = _without_docs(json.loads(path.read_text()))
    return raw["name"], json.dumps(raw, separators=(",", ":"))


def _without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_docs(value) for name, value in schema.items() if name != "doc"}
    if isinstance(schema, list):
        return [_without_docs(item) for item in schema]
    return schema


def _with_table(folder: Path, stage: dict[str, Any]) -> dict[str, Any]:
    """A stage whose table is a CSV file in the folder, with that file's rows."""
    table = stage.get("table")
    if not isinstance(table, dict) or "file" not in table:
        return stage
    with (folder / table["file"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    key, columns = table["key"], table["columns"]
    read = {row[key]: tuple(_number_or_text(row[one]) for one in columns) for row in rows}
    return stage | {"table": {"key": key, "columns": columns, "rows": read}}


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _check_columns(spec: DomainSpec) -> None:
    """Raise ValueError where a stage or input names a record or column that is not there."""
    columns = {
        name: {field["name"] for field in json.loads(text)["fields"]}
        for name, text in spec.schemas.items()
    }
    for one in spec.inputs:
        _check(one.record in columns, f"there is no schema {one.record}")
        for name in (*HEADER, one.key, one.event_time):
            _check(name in columns[one.record], f"{one.record} has no column {name!r}")
    for stage in spec.stages:
        if stage.record:
            _check(stage.record in columns, f"there is no schema {stage.record}")
            made = [each.column for each in stage.aggregates]
            made += [*(each.column for each in stage.changes), *stage.columns]
            for name in (*made, *stage.keys, stage.key):
                _check(name in columns[stage.record], f"{stage.record} has no column {name!r}")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
