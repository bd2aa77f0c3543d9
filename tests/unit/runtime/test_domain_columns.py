"""What is checked of the columns that domain.toml names."""

import json
import shutil
from pathlib import Path

import pytest

from schemas.validation_errors import DefinitionError
from services.definitions.domains import DOMAINS_DIR, load_domain

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


def replace(folder: Path, old: str, new: str) -> None:
    """Change domain.toml once."""
    text = (folder / "domain.toml").read_text()
    assert old in text
    (folder / "domain.toml").write_text(text.replace(old, new, 1))


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


@pytest.mark.parametrize(
    ("base", "logical"),
    [
        ("string", "uuid"),
        ("long", "time-micros"),
        ("bytes", "decimal"),
        ("long", "timestamp-nanos"),
    ],
)
def test_a_logical_type_that_the_columnar_codec_does_not_read_is_refused(
    folder: Path, base: str, logical: str
) -> None:
    kind = ["null", {"type": base, "logicalType": logical, "precision": 9, "scale": 2}]
    change_fields(folder, "gem_packs_parsed", geo=kind)
    with pytest.raises(DefinitionError, match=f"gem_packs_parsed has the logical type {logical}"):
        load_domain(str(folder))


def test_a_time_of_an_output_may_be_null(folder: Path) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    change_fields(folder, "gem_packs_parsed", time=["null", millis])
    assert load_domain(str(folder)).spec.name == "gem_packs"


def test_two_inputs_with_one_topic_are_refused(folder: Path) -> None:
    replace(folder, 'topic = "gem_packs.ads"', 'topic = "gem_packs.purchases"')
    with pytest.raises(DefinitionError, match=r"two inputs have the topic gem_packs\.purchases"):
        load_domain(str(folder))


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ("gem_packs_parsed", "run_id"),
        ("gem_packs_parsed", "sequence"),
        ("gem_packs_enriched", "sequence"),
        ("gem_packs_revenue", "run_id"),
        ("gem_packs_revenue", "window_start"),
        ("gem_packs_revenue", "window_end"),
        ("gem_packs_dear_offer", "ad"),
        ("gem_packs_dear_offer", "window_end"),
    ],
)
def test_an_output_without_a_column_that_identifies_it_is_refused(
    folder: Path, record: str, column: str
) -> None:
    change_fields(folder, record, **{column: None})
    with pytest.raises(DefinitionError, match=f"{record} has no column '{column}'"):
        load_domain(str(folder))


@pytest.mark.parametrize(
    ("domain", "old", "new", "setting"),
    [
        ("gem_packs", "of = ['purchases.price']", "of = ['purchase.price']", "aggregates"),
        ("gem_packs", "of = ['purchases.price']", "of = ['purchases.prize']", "aggregates"),
        ("gem_packs", "of = ['purchases.price']", "of = ['price']", "aggregates"),
        ("gem_packs", "of = ['price']", "of = ['purchases.price']", "aggregates"),
        ("gem_packs", "ad = 'ads.sequence'", "ad = 'add.sequence'", "columns"),
        ("gem_packs", "where = [{ column = 'price'", "where = [{ column = 'prize'", "where"),
        ("flights", "column = 'squawk'", "column = 'squaw'", "where"),
        ("traffic", "column = 'num_lanes', every_s", "column = 'lanes', every_s", "complete"),
        ("traffic", "once_per = ['lane']", "once_per = ['lanes']", "once_per"),
        ("traffic", "of = 'average_speed_km", "of = 'speed_km", "changes"),
    ],
)
def test_a_column_to_read_that_is_not_there_is_refused(
    tmp_path: Path, domain: str, old: str, new: str, setting: str
) -> None:
    folder = shutil.copytree(DOMAINS_DIR / domain, tmp_path / domain)
    replace(folder, old.replace("'", '"'), new.replace("'", '"'))
    reason = rf"domain\.toml: {setting} of the stage \w+: there is no column '.*'; there are: "
    with pytest.raises(DefinitionError, match=reason):
        load_domain(str(folder))


def test_the_keys_must_be_columns_of_every_input_that_is_read(folder: Path) -> None:
    change_fields(folder, "gem_packs_ad", geo=None)
    # Its average is one of purchases; the stage after it joins both inputs.
    with pytest.raises(DefinitionError, match="keys of the stage highest: there is no column"):
        load_domain(str(folder))
