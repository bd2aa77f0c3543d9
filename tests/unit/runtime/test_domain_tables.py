"""The static table of a lookup, as domain.toml names it."""

import shutil
from pathlib import Path

import pytest

from services.runtime.definitions import DefinitionError
from services.runtime.domains import DOMAINS_DIR, load_domain

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DOMAINS_DIR / "gem_packs", tmp_path / "gem_packs")


def test_text_that_looks_like_a_number_stays_text(folder: Path) -> None:
    (folder / "countries.csv").write_text("geo,country\ng000,007\n")
    table = load_domain(str(folder)).spec.stage("enriched").table
    assert table is not None
    assert table.rows == {"g000": ("007",)}


def test_a_table_outside_the_folder_is_refused(folder: Path) -> None:
    (folder.parent / "secrets.csv").write_text("geo,country\ng000,Spain\n")
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace("countries.csv", "../secrets.csv"))
    with pytest.raises(DefinitionError, match=r"the table \.\./secrets\.csv is outside the folder"):
        load_domain(str(folder))


def test_a_table_without_rows_is_refused(folder: Path) -> None:
    (folder / "countries.csv").write_text("geo,country\n")
    with pytest.raises(DefinitionError, match=r"table\.rows: .* at least 1 item"):
        load_domain(str(folder))


@pytest.mark.parametrize("text", ["{", "[]", '{"fields": []}'])
def test_a_schema_that_is_none_is_named(folder: Path, text: str) -> None:
    (folder / "gem_packs_ad.v1.avsc").write_text(text)
    with pytest.raises(DefinitionError, match=r"gem_packs_ad\.v1\.avsc is not a named Avro schema"):
        load_domain(str(folder))
