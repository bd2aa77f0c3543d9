"""The released schemas: names, immutability, and compatibility of versions."""

import io
import json
import re
from itertools import combinations

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas import catalogue, codec
from services.definitions.domains import DOMAINS_DIR, domain_names, load_domain
from tests.contract.avro_values import values_of
from tests.contract.crc_64_avro import canonical, crc_64_avro
from tests.traffic import RELEASED as EVERY
from tests.traffic import RELEASED_NAMES

pytestmark = pytest.mark.contract

FILES = sorted((*codec.SCHEMA_DIR.iterdir(), *DOMAINS_DIR.glob("*/*.avsc")))

# The 10 bytes before every datum. A released schema never changes, because stored data contain
# these bytes. A change is a new version, which gets a new line here.
RELEASED = {
    "control_command.v1": "c301e4ae675a35391b57",
    "dead_letter.v1": "c301e3e4a749829a36bd",
    "flights_area.v1": "c3018267c8db25fbb254",
    "flights_cell.v1": "c30199fd34a6374c1e24",
    "flights_country.v1": "c301a7630773169d3cc6",
    "flights_departure.v1": "c3011734d5202cf7a6cf",
    "flights_emergency.v1": "c301f4185f82d3a04a89",
    "flights_parsed.v1": "c30131f4df6cfbb6312e",
    "flights_state.v1": "c301f6215f9eb9f6a088",
    "gem_packs_ad.v1": "c301328c40a7bc7daf6a",
    "gem_packs_average.v1": "c30106993fc056e50e13",
    "gem_packs_conversion.v1": "c3014230bd6bf18636d7",
    "gem_packs_dear_average.v1": "c3015cb26034a8148e13",
    "gem_packs_dear_offer.v1": "c301b9cf6575d1751d1f",
    "gem_packs_enriched.v1": "c3010a8adc521abeb542",
    "gem_packs_highest.v1": "c301f7ac4a0698cacfe4",
    "gem_packs_highest.v2": "c3018c0aacb2479e6428",
    "gem_packs_offer.v1": "c301ae4329e7d138656a",
    "gem_packs_parsed.v1": "c3014c76d6eed0776f7c",
    "gem_packs_purchase.v1": "c30182e497c1cfeb4ba5",
    "gem_packs_revenue.v1": "c3019198c42ae205ab1c",
    "gem_packs_total.v1": "c301de7a4c80967c4577",
    "output_join.v1": "c301b6b2660150b10bb6",
    "output_parse.v1": "c301b910d8f515b48842",
    "output_sliding.v1": "c3019b5e5663846446d4",
    "output_tumbling.v1": "c3013641e31daed1cd4a",
    "results_conclusions.v1": "c301ef8d487f02a96d08",
    "results_fetches.v1": "c3015a8a17279e02bde7",
    "results_generator.v1": "c301962132c0e557d9e9",
    "results_latency.v1": "c3013873020a5df27e43",
    "results_lifecycle.v1": "c301319b0482f03eba45",
    "results_metrics.v1": "c3014e9ac66c243e6c76",
    "results_pairs.v1": "c301bf9d2b6775aadf53",
    "results_pairs.v2": "c30195f37a16b05d5051",
    "results_pipeline.v1": "c301b3cabf9eebf5395b",
    "results_pipeline.v2": "c30102ec8434b5b42e49",
    "results_resources.v1": "c301d6f7d36d8e5d7e6f",
    "results_resources.v2": "c30180888d242493504a",
    "results_resources.v3": "c301780d32a16d03e998",
    "results_slices.v1": "c3015c6c1bf04b6e6f0a",
    "results_throughput.v1": "c301920134364e30ce0e",
    "results_throughput.v2": "c3016b8e7cac51577368",
    "results_verdicts.v1": "c30159234bc4d2b3d070",
    "traffic_flow.v1": "c3017b207d4654fa12d2",
    "traffic_speed.v1": "c301d7408c19e04802f4",
}


def json_of(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_a_named_version_of_the_record_it_holds(path):
    match = re.fullmatch(r"([a-z]+(?:_[a-z]+)*)\.v([1-9][0-9]*)\.avsc", path.name)
    assert match, "files are named NAME.vN.avsc"
    schema = json_of(path)
    fastavro.parse_schema(schema, _force=True)
    assert (schema["type"], schema["name"], schema["namespace"]) == (
        "record",
        match[1],
        "tidegauge",
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_record_and_field_says_what_it_is(path):
    schema = json_of(path)
    undocumented = [f["name"] for f in schema["fields"] if not f.get("doc", "").endswith(".")]
    assert (schema["doc"][-1], undocumented) == (".", [])


def test_versions_of_a_record_count_from_1_without_gaps():
    for name in RELEASED_NAMES:
        numbers = [schema.version for schema in EVERY.versions(name)]
        assert numbers == list(range(1, len(numbers) + 1)), name


def test_the_reference_fingerprint_gives_the_values_of_the_specification():
    # From the test data of the specification.
    assert crc_64_avro(b'"null"') == 0x63DD24E7CC258F8A
    assert crc_64_avro(b'"int"') == 0x7275D51A3F395C8F
    assert canonical({"type": "string"}) == '"string"'


def test_no_released_schema_has_changed_and_none_is_unlisted():
    found = {path.name.removesuffix(".avsc"): json_of(path) for path in FILES}
    headers = {
        name: "c301" + crc_64_avro(canonical(schema).encode()).to_bytes(8, "little").hex()
        for name, schema in found.items()
    }
    assert headers == RELEASED


def test_the_codec_writes_the_headers_that_were_released():
    ours = {
        f"{schema.name}.v{schema.version}": schema.header.hex()
        for name in RELEASED_NAMES
        for schema in EVERY.versions(name)
    }
    assert ours == RELEASED


def test_every_record_of_the_catalogue_has_a_schema_and_every_schema_is_in_the_catalogue():
    records = {record for topic in catalogue.fixed_topics() for record in topic.records}
    for domain in (load_domain(name).spec for name in domain_names()):
        used = {one.record for one in domain.inputs}
        used |= {record for name in domain.stage_names for record in domain.records_of(name)}
        assert used == set(domain.schemas)
        records |= used
    assert records == set(RELEASED_NAMES)


# Compatibility: FULL_TRANSITIVE, any version reads any other.


def read_as(written, writer, reader):
    """A value written with `writer`, as read with `reader`."""
    ours, theirs = (fastavro.parse_schema(one, _force=True) for one in (writer, reader))
    data = io.BytesIO()
    fastavro.schemaless_writer(data, ours, written)
    data.seek(0)
    return fastavro.schemaless_reader(data, ours, theirs)


def assert_fully_compatible(one, other, examples=25):
    """Each reads the other's data, and shared fields keep their values."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=(Phase.generate,),
    )
    @given(st.data())
    def check(data):
        for writer, reader in ((one, other), (other, one)):
            written = data.draw(values_of(writer))
            read = read_as(written, writer, reader)
            assert set(read) == {field["name"] for field in reader["fields"]}
            for name in set(read) & set(written):
                assert read[name] == written[name]

    check()


@pytest.mark.parametrize("name", RELEASED_NAMES)
def test_every_version_reads_and_is_read_by_every_other(name):
    # Without logical types, as the codec reads and writes: times stay numbers.
    known = [schema.parsed for schema in EVERY.versions(name)]
    for one, other in combinations([*known, known[-1]], 2):
        assert_fully_compatible(one, other)


def version(*fields):
    return {"type": "record", "name": "example", "namespace": "tidegauge", "fields": list(fields)}


KEPT = {"name": "kept", "type": "long"}


def test_a_field_with_a_default_may_be_added_and_removed():
    added = {"name": "added", "type": "string", "default": ""}
    assert_fully_compatible(version(KEPT), version(KEPT, added))


@pytest.mark.parametrize(
    ("why", "later"),
    [
        ("a new field has no default", version(KEPT, {"name": "added", "type": "string"})),
        ("a field without default is gone", version({"name": "o", "type": "int", "default": 0})),
        ("a field has another name", version({"name": "renamed", "type": "long"})),
        ("a field has another type", version({"name": "kept", "type": "string"})),
        ("a wider type cannot be read by the older", version({"name": "kept", "type": "double"})),
        ("null cannot be read by the older", version({"name": "kept", "type": ["null", "long"]})),
    ],
)
def test_the_checker_refuses_a_later_version_when(why, later):
    with pytest.raises((SchemaResolutionError, AssertionError)):
        assert_fully_compatible(version(KEPT), later)
