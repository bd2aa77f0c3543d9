"""Converts requests of the dashboards page to queries of the reader. Pure except for reading files.

A request names a query of a dashboard file, a time range and variables; the SQL comes from the
file. Access to the page alone therefore does not allow running arbitrary SQL. A variable's value is
inserted into the SQL where the file refers to it: a custom variable's must be one of its options,
any other must contain nothing that could end a string. Every query is also judged like all of the
reader's queries.

The schema of the files is Grafana's own (`schemaVersion` 36 and later): panels with targets, rows
that contain their panels while collapsed, variables in `templating.list`, annotations in
`annotations.list`. A file's subfolder is the folder in which Grafana shows it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.validation_errors import first_mistake
from services.runtime.grafana_macros import (
    ALL,
    MacroError,
    TimeRange,
    Value,
    expand,
    interval_for,
    names_used,
)
from services.runtime.settings import ROOT
from services.store.engine import Query

DASHBOARDS_DIR = ROOT / "deploy" / "grafana" / "dashboards"
MAX_FILE_BYTES = 4 * 1024 * 1024
Model = Mapping[str, Any]
FIRST: Final = "overview"
# Bounds of one panel's result in a browser; narrower than the reader's.
LIMITS: Final = {
    "max_execution_time": "20",
    "max_result_rows": "100000",
    "max_result_bytes": str(32 * 1024 * 1024),
}
FORMAT: Final = {
    "date_time_output_format": "iso",
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_denormals": "0",
}
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_INTERVAL = re.compile(r"(\d{1,6})(ms|[smhdw])")
_UNSAFE = re.compile(r"['\"`\\\x00-\x1f\x7f]")
Text = Annotated[str, Field(max_length=400)]


class NotThereError(LookupError):
    """A requested dashboard, panel, query, variable or annotation does not exist."""


@dataclass(frozen=True)
class Dashboard:
    """One file. error: why it cannot be shown, in one sentence, or empty."""

    uid: str
    title: str
    folder: str
    model: Model
    error: str = ""

    def as_entry(self) -> dict[str, Any]:
        """The dashboard as an entry of a list."""
        return {
            "uid": self.uid,
            "title": self.title,
            "folder": self.folder,
            "description": self.model.get("description", ""),
            "tags": self.model.get("tags", []),
            "error": self.error,
        }


def load_dashboards(folder: Path = DASHBOARDS_DIR) -> tuple[Dashboard, ...]:
    """Every `*.json` below the folder, ordered by folder and file name, the overview first."""
    result = []
    paths = folder.rglob("*.json")
    for path in sorted(paths, key=lambda each: (each.parent, each.stem != FIRST, each)):
        state = path.stat()
        place = path.parent.relative_to(folder).as_posix()
        result.append(
            _loaded(path, "" if place == "." else place, state.st_mtime_ns, state.st_size)
        )
    return tuple(result)


def dashboard(uid: str, dashboards: Sequence[Dashboard]) -> Dashboard:
    """The dashboard with this uid. Raises NotThereError."""
    for each in dashboards:
        if each.uid == uid and not each.error:
            return each
    raise NotThereError(f"There is no dashboard with the uid {uid!r}.")


def panel_of(model: Model, panel_id: int) -> Model:
    """A panel, including those of collapsed rows. Raises NotThereError."""
    for panel in _panels(model):
        if panel.get("id") == panel_id:
            return panel
    raise NotThereError(f"There is no panel {panel_id} on this dashboard.")


def query_of_panel(panel: Model, ref: str) -> str:
    """SQL of the panel's target with this refId. Raises NotThereError."""
    for target in panel.get("targets", ()):
        if target.get("refId", "A") == ref:
            return _sql(target)
    raise NotThereError(f"There is no query {ref!r} in this panel.")


def variables_of(model: Model) -> dict[str, Model]:
    """The variables of a dashboard by name."""
    listed = model.get("templating", {}).get("list", ())
    return {str(each.get("name")): each for each in listed}


def query_of_variable(model: Model, name: str) -> str:
    """SQL that lists the values of a variable. Raises NotThereError."""
    result = variables_of(model).get(name)
    if result is None or result.get("type") != "query":
        raise NotThereError(f"There is no variable {name!r} with a query on this dashboard.")
    query = result.get("query")
    return query if isinstance(query, str) else _sql(query or {})


def query_of_annotation(model: Model, name: str) -> str:
    """SQL of an annotation. Raises NotThereError."""
    for each in model.get("annotations", {}).get("list", ()):
        if each.get("name") == name:
            return _sql(each.get("target") or each)
    raise NotThereError(f"There is no annotation {name!r} on this dashboard.")


def options_of(variable: Model) -> tuple[str, ...]:
    """Values of a custom variable: `a, b` or `Text : value` in its query."""
    parts = str(variable.get("query", "")).split(",")
    return tuple(part.rpartition(" : ")[2].strip() for part in parts)


def _panels(model: Model) -> Iterator[Model]:
    for panel in model.get("panels", ()):
        yield panel
        yield from panel.get("panels") or ()


def _sql(target: Model) -> str:
    for key in ("rawSql", "query"):
        if isinstance(target.get(key), str) and target[key].strip():
            return str(target[key])
    raise NotThereError("This query contains no SQL.")


@lru_cache(maxsize=256)
def _loaded(path: Path, folder: str, _modified_ns: int, size: int) -> Dashboard:
    if size > MAX_FILE_BYTES:
        return Dashboard("", path.name, folder, {}, f"{path.name} exceeds {MAX_FILE_BYTES} bytes.")
    try:
        model = json.loads(path.read_bytes())
        return Dashboard(str(model["uid"]), str(model["title"]), folder, model)
    except OSError as error:
        why = f"{path.name} cannot be read: {error.strerror}."
        return Dashboard("", path.name, folder, {}, why)
    except (ValueError, KeyError, TypeError) as error:
        return Dashboard("", path.name, folder, {}, f"{path.name} is not a dashboard: {error}.")


class AskingError(ValueError):
    """The request is invalid; the text is one sentence."""


class DashboardQuery(BaseModel):
    """One query of a dashboard: of a panel's target, of a variable, or of an annotation.

    points: approximate number of points that fit into the graph; ignored if the panel sets it
    itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dashboard: Text
    panel: int | None = None
    ref: Text = "A"
    variable: Text | None = None
    annotation: Text | None = None
    from_ms: int = Field(ge=0, le=4_102_444_800_000)
    to_ms: int = Field(ge=0, le=4_102_444_800_000)
    points: int = Field(600, ge=1, le=5000)
    variables: dict[Text, Text | Annotated[list[Text], Field(max_length=500)]] = Field(
        default_factory=dict, max_length=50
    )

    @model_validator(mode="after")
    def _one_thing(self) -> "DashboardQuery":
        if sum(each is not None for each in (self.panel, self.variable, self.annotation)) != 1:
            raise ValueError("name a panel, a variable or an annotation")
        if self.from_ms >= self.to_ms:
            raise ValueError("the time range must end after it begins")
        return self


def asked_from(body: bytes) -> DashboardQuery:
    """Parse the JSON of a request. Raises AskingError."""
    try:
        return DashboardQuery.model_validate_json(body)
    except ValidationError as error:
        raise AskingError(f"{first_mistake(error, 'request')}.") from error


def query_for(asked: DashboardQuery, dashboard: Dashboard) -> tuple[Query, int]:
    """The reader's query with its macros expanded, and the interval between points of a graph in
    seconds.

    Raises AskingError.
    """
    time_range = TimeRange(asked.from_ms, asked.to_ms)
    try:
        sql, panel = _sql_of(asked, dashboard.model)
        interval_s = interval_for(time_range, _points(asked, panel), _least_s(panel))
        text = expand(sql, time_range, interval_s, _values(asked, dashboard.model, sql))
    except (NotThereError, MacroError) as error:
        raise AskingError(str(error)) from error
    return Query(text, "JSONCompact", settings=LIMITS | FORMAT), interval_s


def _sql_of(asked: DashboardQuery, model: Model) -> tuple[str, Model]:
    if asked.variable is not None:
        return query_of_variable(model, asked.variable), {}
    if asked.annotation is not None:
        return query_of_annotation(model, asked.annotation), {}
    panel = panel_of(model, asked.panel or 0)
    return query_of_panel(panel, asked.ref), panel


def _points(asked: DashboardQuery, panel: Model) -> int:
    return int(panel.get("maxDataPoints") or asked.points)


def _least_s(panel: Model) -> int:
    """The panel's own minimum interval (`interval`, for example `>5s`) in seconds, at least 1."""
    match = _INTERVAL.search(str(panel.get("interval") or ""))
    return max(1, int(match[1]) * _UNITS_S.get(match[2], 0)) if match else 1


def _values(asked: DashboardQuery, model: Model, sql: str) -> dict[str, Value]:
    known = variables_of(model)
    return {name: _value(name, known.get(name), asked) for name in sorted(names_used(sql))}


def _value(name: str, variable: Model | None, asked: DashboardQuery) -> Value:
    if variable is None:
        raise AskingError(f"The dashboard has no variable {name!r}.")
    if variable.get("type") == "constant":
        return str(variable.get("query", ""))
    if name not in asked.variables:
        raise AskingError(f"No value is given for the variable {name!r}.")
    given: Any = asked.variables[name]
    options = options_of(variable) if variable.get("type") == "custom" else None
    for value in [given] if isinstance(given, str) else given:
        if value == ALL:
            continue
        if options is not None and value not in options:
            raise AskingError(f"{value!r} is not a value of the variable {name!r}.")
        if _UNSAFE.search(value):
            raise AskingError(f"A value of {name!r} contains a quote or a control character.")
    return given if isinstance(given, str) else list(given)
