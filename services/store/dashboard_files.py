"""Reads the Grafana dashboard files and finds queries in them. Pure except for reading files.

The schema is Grafana's own (`schemaVersion` 36 and later): panels with targets, rows that contain
their panels while collapsed, variables in `templating.list`, annotations in `annotations.list`. A
file's subfolder is the folder in which Grafana shows it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from services.runtime.settings import ROOT

DASHBOARDS_DIR = ROOT / "deploy" / "grafana" / "dashboards"
MAX_FILE_BYTES = 4 * 1024 * 1024
Model = Mapping[str, Any]


class NotThereError(LookupError):
    """A requested dashboard, panel, query, variable or annotation does not exist."""


FIRST: Final = "overview"


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
    found = []
    paths = folder.rglob("*.json")
    for path in sorted(paths, key=lambda one: (one.parent, one.stem != FIRST, one)):
        state = path.stat()
        place = path.parent.relative_to(folder).as_posix()
        found.append(_loaded(path, "" if place == "." else place, state.st_mtime_ns, state.st_size))
    return tuple(found)


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
    found = variables_of(model).get(name)
    if found is None or found.get("type") != "query":
        raise NotThereError(f"There is no variable {name!r} with a query on this dashboard.")
    query = found.get("query")
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
