"""The static table of a lookup, as domain.toml names it."""

import shutil
from pathlib import Path

import pytest

from schemas.validation_errors import DefinitionError
from services.definitions.domains import DOMAINS_DIR, load_domain

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DOMAINS_DIR / "gem_packs", tmp_path / "gem_packs")


def test_text_that_looks_like_a_number_stays_text(folder: Path) -> None:
    (folder / "countries.csv").write_text("geo,country\ng000,007\n")
    table = load_domain(str(folder)).spec.stage("enriched").table
    assert table is not None
    assert table.rows == {"g000": ("007",)}


def test_a_table_may_begin_with_the_mark_of_a_spreadsheet(folder: Path) -> None:
    (folder / "countries.csv").write_text("geo,country\ng000,Spain\n", encoding="utf-8-sig")
    table = load_domain(str(folder)).spec.stage("enriched").table
    assert table is not None
    assert table.rows == {"g000": ("Spain",)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", " is empty"),
        ('[{"departure": "EDDF"}]', " is JSON; save the table as CSV"),
        ("departure,airport\n", " has no column 'country'; it has: departure, airport"),
        ("departure;airport\n", " has semicolons between its columns"),
        ("departure,airport, Airport\n", ": the columns 'airport' and 'Airport' differ only in"),
        (
            "LFPO,Orly,France,48.7,2.4\nLFPO,Orly,Spain,48.7,2.4",
            ", line 3: departure 'LFPO' occurs",
        ),
        ("LFPO,Orly,France,,2.4", ", line 2: airport_latitude is empty"),
        ("LFPO,Orly,France,n,2.4", ", line 2: airport_latitude is 'n', which is not a number"),
        (",Orly,France,48.7,2.4", ", line 2: departure is empty"),
        ("LFPO,Orly", ", line 2: the row has more or fewer columns"),
        ("LFPO,Orly,France,48.7,2.4,x", ", line 2: the row has more or fewer columns"),
    ],
)
def test_an_error_in_a_table_names_file_line_and_column(
    tmp_path: Path, text: str, reason: str
) -> None:
    folder = shutil.copytree(DOMAINS_DIR / "flights", tmp_path / "flights")
    if text.startswith(("LFPO", ",")):
        text = f"departure,airport,country,airport_latitude,airport_longitude\n{text}\n"
    (folder / "airports.csv").write_text(text)
    with pytest.raises(DefinitionError, match=rf"domain\.toml: \S*airports\.csv{reason}"):
        load_domain(str(folder))


def test_a_table_without_a_key_is_refused(folder: Path) -> None:
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace('csv", key = "geo"', 'csv"'))
    with pytest.raises(DefinitionError, match=r"the table countries\.csv needs key"):
        load_domain(str(folder))


def test_a_table_outside_the_folder_is_refused(folder: Path) -> None:
    (folder.parent / "secrets.csv").write_text("geo,country\ng000,Spain\n")
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace("countries.csv", "../secrets.csv"))
    with pytest.raises(DefinitionError, match=r"the table \.\./secrets\.csv is outside the folder"):
        load_domain(str(folder))


def test_a_table_without_rows_is_refused(folder: Path) -> None:
    (folder / "countries.csv").write_text("geo,country\n")
    with pytest.raises(DefinitionError, match=r"table\.rows: .* at least 1 entry"):
        load_domain(str(folder))


@pytest.mark.parametrize("text", ["{", "[]", '{"fields": []}'])
def test_a_schema_that_is_none_is_named(folder: Path, text: str) -> None:
    (folder / "gem_packs_ad.v1.avsc").write_text(text)
    with pytest.raises(DefinitionError, match=r"gem_packs_ad\.v1\.avsc is not a named Avro schema"):
        load_domain(str(folder))
