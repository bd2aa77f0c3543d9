"""What is checked of the columns that domain.toml names."""

import json
import shutil
from pathlib import Path

import pytest

from services.runtime.definitions import DefinitionError
from services.runtime.domains import DOMAINS_DIR, load_domain

pytestmark = pytest.mark.unit

MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DOMAINS_DIR / "gem_packs", tmp_path / "gem_packs")


def change_fields(folder: Path, record: str, **types: object) -> None:
    """Change the types of a record's columns; None removes one."""
    path = folder / f"{record}.v1.avsc"
    schema = json.loads(path.read_text())
    changed = [one | {"type": types.get(one["name"], one["type"])} for one in schema["fields"]]
    schema["fields"] = [one for one in changed if one["type"] is not None]
    path.write_text(json.dumps(schema))


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ("gem_packs_ad", "time"),
        ("gem_packs_parsed", "time"),
        ("gem_packs_revenue", "window_start"),
        ("gem_packs_dear_offer", "window_end"),
    ],
)
@pytest.mark.parametrize("kind", [MICROS, "long"])
def test_a_time_that_is_not_in_milliseconds_is_refused(
    folder: Path, record: str, column: str, kind: object
) -> None:
    change_fields(folder, record, **{column: kind})
    reason = f"'{column}' of {record} must be of the logical type timestamp-millis"
    with pytest.raises(DefinitionError, match=reason):
        load_domain(str(folder))


def test_a_time_of_an_output_may_be_null(folder: Path) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    change_fields(folder, "gem_packs_parsed", time=["null", millis])
    assert load_domain(str(folder)).spec.name == "gem_packs"
